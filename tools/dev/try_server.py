#!/usr/bin/env python3
"""Sends many requests to `slipstream serve` over many connections at once, in all its dialects: texts and conversations
that branch, with and without tools, plain and streamed, broken ones, slow senders, clients that leave. Checks that each
finished answer is the text of `generate`, that the server stays alive and its slot comes free, and that its memory does
not grow.

usage: try_server.py PROGRAM [--requests N] [--distinct N] [--connections N] [--seed N] [-m MODEL] [--oracle PROGRAM]
       [--texts FILE] [--sanitized] [-- OPTIONS OF serve]
--sanitized: the program is built with a sanitizer, whose memory says nothing and is not looked at.
--oracle names the program whose `generate` gives the texts, if it is another build. --texts keeps these texts in a file.
A conversation goes through a template with tools, unless the model has its own.
Exit code 1 if anything was wrong. Needs Python's library alone.
"""
import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROMPTS = ["The wolf said", "The wolf said that the fox was", "Once upon a time", "Once upon a time there was a king who",
           "In a deep forest", "The king's daughter", "A poor woodcutter"]
WORDS = ["and", "the", "old", "wolf", "went", "house", "she", "said", "golden", "three"]

# In the form of Hermes and Qwen.
TEMPLATE = """{%- if tools %}You can call: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}
{%- endif %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}

{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""


def tool(name, description, /, **properties):
    parameters = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS = [
    [tool("hunt", "Look for an animal.", animal="string", days="integer")],
    [tool("spin", "Make gold of straw.", pounds="number"), tool("guess", "Guess a name.", name="string")],
]


def some_words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


class Cases:
    """Distinct requests. A conversation is a list of (role, text), where the text of a call is (tool, arguments)."""

    def __init__(self, n, rng):
        self.rng = rng
        self.cases = []
        seen = set()
        while len(self.cases) < n:
            case = self.raw() if rng.random() < 0.3 else self.conversation()
            key = json.dumps(case)
            if key not in seen:
                seen.add(key)
                self.cases.append(case)

    def sampling(self):
        return {"seed": self.rng.randrange(1 << 32), "temperature": self.rng.choice([0, 0.5, 0.8, 1.2]),
                "max_tokens": self.rng.randrange(1, 40)}

    def raw(self):
        prompt = self.rng.choice(PROMPTS) + " " + some_words(self.rng, self.rng.randrange(60))
        return {"prompt": prompt.strip(), **self.sampling()}

    def conversation(self):
        rng = self.rng
        earlier = [case for case in self.cases if "turns" in case and len(case["turns"]) < 12]
        if earlier and rng.random() < 0.75:  # a branch of an earlier one, or the same once more with another seed
            begun = rng.choice(earlier)
            tools, turns = begun["tools"], begun["turns"]
            if rng.random() < 0.7:
                turns = turns + self.answer(tools) + [("user", some_words(rng, rng.randrange(1, 30)))]
        else:
            tools = rng.choice([None, None, *TOOLS])
            turns = [("system", some_words(rng, rng.choice([3, 40, 200]))), ("user", rng.choice(PROMPTS))]
        choice = rng.choice(["auto", "none", "required", rng.choice(tools)["name"]]) if tools else None
        return {"tools": tools, "choice": choice, "turns": turns, **self.sampling()}

    def answer(self, tools):
        if not tools or self.rng.random() < 0.5:
            return [("assistant", some_words(self.rng, self.rng.randrange(1, 20)))]
        called = self.rng.choice(tools)
        values = {"string": "fox", "integer": 3, "number": 1.5}
        arguments = {key: values[of["type"]] for key, of in called["parameters"]["properties"].items()}
        return [("call", [called["name"], arguments]), ("result", some_words(self.rng, 5))]


def call_id(at):
    return f"call{at:05d}"  # of the form that all templates take


def chat_body(case):
    messages = []
    for at, (role, text) in enumerate(case["turns"]):
        if role == "call":
            function = {"name": text[0], "arguments": json.dumps(text[1])}
            messages.append({"role": "assistant", "content": None, "tool_calls":
                             [{"id": call_id(at), "type": "function", "function": function}]})
        elif role == "result":
            messages.append({"role": "tool", "tool_call_id": call_id(at - 1), "content": text})
        else:
            messages.append({"role": role, "content": text})
    body = {"messages": messages}
    if case["tools"]:
        body["tools"] = [{"type": "function", "function": function} for function in case["tools"]]
        choice = case["choice"]
        named = choice not in ("auto", "none", "required")
        body["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
    return body


def messages_body(case):
    """In Anthropic's form."""
    body = {"messages": []}
    for at, (role, text) in enumerate(case["turns"]):
        if role == "system":
            body["system"] = text
        elif role == "call":
            block = {"type": "tool_use", "id": call_id(at), "name": text[0], "input": text[1]}
            body["messages"].append({"role": "assistant", "content": [block]})
        elif role == "result":
            block = {"type": "tool_result", "tool_use_id": call_id(at - 1), "content": text}
            body["messages"].append({"role": "user", "content": [block]})
        else:
            body["messages"].append({"role": role, "content": text})
    if case["tools"]:
        body["tools"] = [{"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
                         for each in case["tools"]]
        kinds = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
        body["tool_choice"] = kinds.get(case["choice"], {"type": "tool", "name": case["choice"]})
    return body


def responses_body(case):
    items = []
    for at, (role, text) in enumerate(case["turns"]):
        if role == "call":
            items.append({"type": "function_call", "call_id": call_id(at), "name": text[0],
                          "arguments": json.dumps(text[1])})
        elif role == "result":
            items.append({"type": "function_call_output", "call_id": call_id(at - 1), "output": text})
        elif role != "system":
            items.append({"role": role, "content": text})
    body = {"instructions": case["turns"][0][1], "input": items}
    if case["tools"]:
        body["tools"] = [{"type": "function", **each} for each in case["tools"]]
        named = case["choice"] not in ("auto", "none", "required")
        body["tool_choice"] = {"type": "function", "name": case["choice"]} if named else case["choice"]
    return body


def expected_text(program, model, template, case):
    """Returns what `generate` prints for the case. A call that the request demands begins in the prompt."""
    given = b""
    if "turns" in case:
        arguments, given = ["--messages", "-", *template], json.dumps(chat_body(case)).encode()
    else:
        arguments = ["--prompt", case["prompt"], "--no-template"]
    run = subprocess.run([program, "generate", *arguments, "--seed", str(case["seed"]), "--temperature",
                          str(case["temperature"]), "--max-tokens", str(case["max_tokens"]), "--tables", "off", "-q",
                          "--threads", "1", "--draft", "none", *model], capture_output=True, check=True, input=given)
    return run.stdout.decode()


def expected_texts(program, model, template, cases, path):
    """[cases]; texts that an earlier run left in the file at `path` are not generated again."""
    known = {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    texts = []
    for case in cases:
        key = json.dumps(case)
        if key not in known:
            known[key] = expected_text(program, model, template, case)
        texts.append(known[key])
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(known, file)
    return texts


class Dialect:
    """A path, how a case becomes a body, and how the text is read from an answer or from the events of a stream."""

    def __init__(self, path, prompt, whole, delta, is_end):
        self.path, self.prompt, self.whole, self.delta, self.is_end = path, prompt, whole, delta, is_end

    def request(self, case, streamed):
        body = {name: case[name] for name in ("seed", "temperature", "max_tokens")}
        body.update(self.prompt(case))
        if streamed:
            body["stream"] = True
        body = json.dumps(body).encode()
        return (f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def text_of(self, body, streamed):
        if not streamed:
            return self.whole(json.loads(body))
        events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
        events = [event if event == "[DONE]" else json.loads(event) for event in events]
        if not self.is_end(events[-1]):
            raise ValueError(f"a stream without its end: {events[-1]}")
        return "".join(self.delta(event) for event in events if event != "[DONE]")


def first_choice(name):
    return lambda event: (event["choices"] or [{}])[0].get(name, {} if name == "delta" else "")


RAW = [
    Dialect("/v1/completions", lambda case: {"prompt": case["prompt"]}, first_choice("text"), first_choice("text"),
            lambda event: event == "[DONE]"),
    Dialect("/completion", lambda case: {"prompt": case["prompt"]}, lambda answer: answer["content"],
            lambda event: event["content"], lambda event: event["stop"]),
]
CHAT = [
    Dialect("/v1/chat/completions", chat_body,
            lambda answer: answer["choices"][0]["message"]["content"] or "",
            lambda event: first_choice("delta")(event).get("content", ""), lambda event: event == "[DONE]"),
    Dialect("/v1/messages", messages_body,
            lambda answer: "".join(block["text"] for block in answer["content"]),
            lambda event: event.get("delta", {}).get("text", ""), lambda event: event["type"] == "message_stop"),
    Dialect("/v1/responses", responses_body,
            lambda answer: "".join(item["content"][0]["text"] for item in answer["output"]),
            lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
            lambda event: event["type"] in ("response.completed", "response.incomplete")),
]


def read_answer(stream):
    """Returns (status, body) of one answer."""
    status = int(stream.readline().split()[1])
    fields = {}
    while (line := stream.readline().strip()):
        name, value = line.decode().split(":", 1)
        fields[name.lower()] = value.strip()
    if "content-length" in fields:
        return status, stream.read(int(fields["content-length"]))
    body = b""
    while (size := int(stream.readline(), 16)) > 0:
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return status, body


class Trial:
    def __init__(self, port, cases, texts, n_requests, on_request):
        self.port, self.cases, self.texts, self.left, self.on_request = port, cases, texts, n_requests, on_request
        self.lock = threading.Lock()
        self.n_done = 0
        self.counts = {"equal": 0, "full": 0, "refused": 0, "broken": 0, "left": 0}
        self.compared = set()  # cases
        self.faults = []

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def count(self, what):
        with self.lock:
            self.counts[what] += 1
            if what != "full":
                self.n_done += 1
                self.on_request(self.n_done)

    def run(self, rng):
        connection = None
        while self.take():
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port), timeout=300)
                if not self.one(connection, rng):
                    connection.close()
                    connection = None
            except Exception as error:  # whatever it is, it is a finding
                with self.lock:
                    self.faults.append(repr(error))
                connection = None

    @staticmethod
    def answer(connection, message, is_slow):
        if is_slow:
            for at in range(0, len(message), 40):
                connection.sendall(message[at : at + 40])
                time.sleep(0.002)
        else:
            connection.sendall(message)
        return read_answer(connection.makefile("rb"))

    def one(self, connection, rng):
        """Makes one request; returns whether the connection can be used again."""
        i = rng.randrange(len(self.cases))
        case = self.cases[i]
        streamed = rng.random() < 0.5
        dialect = rng.choice(CHAT if "turns" in case else RAW)
        message = dialect.request(case, streamed)
        kind = rng.random()
        if kind < 0.1:  # leaves before the answer or within it
            connection.sendall(message[: rng.randrange(1, len(message) + 1)] if kind < 0.05 else message)
            connection.settimeout(rng.random() * 0.1)
            try:
                connection.recv(rng.randrange(1, 2000))
            except TimeoutError:
                pass
            self.count("left")
            return False
        if kind < 0.2:  # a broken body
            broken = bytearray(message)
            for _ in range(3):
                broken[rng.randrange(message.index(b"\r\n\r\n") + 4, len(message))] = rng.randrange(256)
            message = bytes(broken)
        status, body = self.answer(connection, message, kind > 0.9)
        while status == 503 and b"wait already" in body:
            self.count("full")
            time.sleep(0.1)
            status, body = self.answer(connection, message, kind > 0.9)
        if kind < 0.2:
            self.count("refused" if status == 400 else "broken")
        elif status != 200:
            raise ValueError(f"status {status}: {body[:200]}")
        elif (text := dialect.text_of(body, streamed)) != self.texts[i]:
            raise ValueError(f"another text for {case} by {dialect.path}: {text!r}, {self.texts[i]!r} expected")
        else:
            self.count("equal")
            self.compared.add(i)
        return True


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def get(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return read_answer(connection.makefile("rb"))[1].decode()


def start(program, arguments, log):
    """Returns (process, port) of a server."""
    server = subprocess.Popen([program, "serve", "--port", "0", "--log-file", log, "--tables", "off", "-q", *arguments])
    while server.poll() is None:
        time.sleep(0.05)
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                found = re.search(r"listening at http://127\.0\.0\.1:(\d+)", file.read())
            if found:
                return server, int(found[1])
    raise RuntimeError("the server does not start")


def post(port, path, body):
    """Returns (status, body) of the answer."""
    body = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return read_answer(connection.makefile("rb"))


def fill_context(port):
    """Generates a text as long as the context after a prompt with a whole prefill chunk, so that the KV cache and the
    buffers of passes have all of their memory: the system gives it to them when they are first written."""
    prompt = some_words(random.Random(1), 1400)
    status, answer = post(port, "/completion", {"prompt": prompt, "max_tokens": -1, "ignore_eos": True})
    if status != 200 or json.loads(answer)["stop_type"] != "limit":
        raise RuntimeError(f"the context was not filled: {answer[:200]}")


def faults_of_large_body(port, pid):
    """A conversation of 150,000 messages is refused, and its memory, about 250 MiB, goes back to the system."""
    before = resident_kib(pid)
    status, _ = post(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 150_000})
    end = time.time() + 20
    while resident_kib(pid) > before + (64 << 10) and time.time() < end:
        time.sleep(0.1)
    kept = resident_kib(pid) - before
    return [f"status {status} and {kept} KiB kept after a large body"] if status != 400 or kept > 64 << 10 else []


def faults_of(trial, memory, port, options):
    """What was wrong, a line each."""
    faults = trial.faults[:5]
    if len(trial.compared) * 2 < len(trial.cases) or trial.counts["equal"] * 3 < options.requests:
        faults.append(f"too few answers were compared: {trial.counts['equal']} of {len(trial.compared)} cases")
    end = time.time() + 60
    while '"is_processing":true' in get(port, "/slots") and time.time() < end:
        time.sleep(0.05)
    if '"is_processing":true' in get(port, "/slots"):
        faults.append("the slot is stuck")
    # In the first part of the requests, the draft tables grow to the size that these texts need.
    settled = [kib for n, kib in memory if n >= min(1000, options.requests / 3)]
    if max(settled) > settled[0] * 1.05 and not options.sanitized:
        faults.append(f"memory grows from {settled[0]} to {max(settled)} KiB")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--distinct", type=int, default=30)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--oracle")
    parser.add_argument("--texts")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("-m", dest="model")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    rng = random.Random(options.seed)
    cases = Cases(options.distinct, rng).cases
    with tempfile.TemporaryDirectory() as folder:
        model = ["-m", options.model] if options.model else []
        template = [] if options.model else ["--template", os.path.join(folder, "template.jinja")]
        with open(os.path.join(folder, "template.jinja"), "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        texts = expected_texts(options.oracle or options.program, model, template, cases, options.texts)
        # So little memory for earlier texts is full after a few requests, and then it does not grow.
        server, port = start(options.program, [*model, *template, "--ctx", "2048", "--kept-memory", "16M",
                                               *sys.argv[end + 1 :]], os.path.join(folder, "log"))
        try:
            if not options.sanitized:
                fill_context(port)
            large = faults_of_large_body(port, server.pid) if not options.sanitized else []
            step = max(options.requests // 40, 10)
            memory = []  # (requests, KiB)
            began = time.time()

            def look(n_done):
                if n_done % step == 0:
                    memory.append((n_done, resident_kib(server.pid)))

            trial = Trial(port, cases, texts, options.requests, look)
            threads = [threading.Thread(target=trial.run, args=(random.Random(rng.random()),))
                       for _ in range(options.connections)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"{trial.counts}, {len(trial.compared)} of {len(cases)} cases, {time.time() - began:.0f} s; KiB:",
                  *(f"{kib} ({n})" for n, kib in memory[:: max(len(memory) // 10, 1)]))
            alive = server.poll() is None
            faults = faults_of(trial, memory, port, options) if alive else [*trial.faults[:5], "the server has ended"]
            faults += large
        finally:
            server.terminate()
            code = server.wait()
        if code != 143:
            faults.append(f"exit code {code}")
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
