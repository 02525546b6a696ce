"""What transformers makes of a chat template: its own render_jinja_template (utils/chat_template_utils.py), with the clock
stopped. Used by the make_*.py scripts beside it; needs transformers 5 and jinja2 3.1.
"""
import datetime
import traceback

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2025, 3, 14, 9, 5, 7)


class StoppedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = StoppedClock


def line_of(error):
    """The template line of an error: a syntax error's own, else that of the innermost frame in the template."""
    if getattr(error, "lineno", None) is not None:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename in ("<template>", "<unknown>")]
    return lines[-1] if lines else 0


def render(source, messages=(), tools=None, documents=None, add_generation_prompt=False, **variables):
    """{"text": rendering}, or {"error": message, "kind": its Python type, "line": template line}."""
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [list(messages)], tools=tools, documents=documents, chat_template=source,
            add_generation_prompt=add_generation_prompt, **variables)
        return {"text": rendered[0]}
    except RecursionError:
        raise
    except Exception as error:  # whatever Python raises is an error of the template to us
        message = getattr(error, "message", None) or str(error)
        return {"error": message, "kind": type(error).__name__, "line": line_of(error)}
