"""What the reference engine, jinja2 3.1, makes of a chat template when it is set up as transformers sets it up
(utils/chat_template_utils.py): the immutable sandbox, trim_blocks, lstrip_blocks, loop controls, {% generation %}, its
tojson, raise_exception and strftime_now; the clock is stopped. Used by the make_*.py scripts beside it; needs jinja2.
"""
import datetime
import json
import traceback

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2025, 3, 14, 9, 5, 7)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def from_json(text):
    return json.loads(text)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.filters["from_json"] = from_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


ENVIRONMENT = environment()


def line_of(error):
    """The template line of an error: a syntax error's own, else that of the innermost frame in the template."""
    if getattr(error, "lineno", None) is not None:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename in ("<template>", "<unknown>")]
    return lines[-1] if lines else 0


def render(source, messages=(), tools=None, documents=None, add_generation_prompt=False, **variables):
    """{"text": rendering}, or {"error": message, "kind": its Python type, "line": template line}."""
    try:
        return {"text": ENVIRONMENT.from_string(source).render(
            **{"messages": list(messages), "tools": tools, "documents": documents,
               "add_generation_prompt": add_generation_prompt, **variables})}
    except RecursionError:
        raise
    except Exception as error:  # whatever Python raises is an error of the template to us
        message = getattr(error, "message", None) or str(error)
        return {"error": message, "kind": type(error).__name__, "line": line_of(error)}
