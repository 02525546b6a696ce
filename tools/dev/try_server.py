#!/usr/bin/env python3
"""Sends many requests to `slipstream serve` over many connections at once, in all its dialects: plain and streamed ones,
broken ones, slow senders, clients that leave. Checks that each finished answer is the text of `generate`, that the
server stays alive and its slot comes free, and that its memory does not grow.

usage: try_server.py PROGRAM [--requests N] [--distinct N] [--connections N] [--seed N] [-m MODEL]
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


def make_cases(n, rng):
    """[n] distinct requests: prompts with common beginnings, seeds, temperatures, lengths."""
    cases = []
    for i in range(n):
        prompt = rng.choice(PROMPTS) + " " + " ".join(rng.choice(["and", "the", "old", "wolf", "went"]) for _ in range(i % 60))
        cases.append({"prompt": prompt.strip(), "seed": rng.randrange(1 << 32), "temperature": rng.choice([0, 0.5, 0.8, 1.2]),
                      "max_tokens": rng.randrange(1, 40)})
    return cases


def expected_texts(program, model, case):
    """Returns the texts for the prompt as a raw text, and for the prompt as a message of the user."""
    common = ["--seed", str(case["seed"]), "--temperature", str(case["temperature"]), "--max-tokens",
              str(case["max_tokens"]), "--tables", "off", "-q"] + model
    messages = json.dumps({"messages": user_messages(case)})
    return [subprocess.run([program, "generate", *arguments, *common], capture_output=True, check=True, input=given)
            .stdout.decode()
            for arguments, given in [(["--prompt", case["prompt"], "--no-template"], b""),
                                     (["--messages", "-"], messages.encode())]]


def user_messages(case):
    return [{"role": "user", "content": case["prompt"]}]


class Dialect:
    """A path, how a case becomes a body, and how the text is read from an answer or from the events of a stream."""

    def __init__(self, path, prompt, whole, delta, is_end):
        self.path, self.prompt, self.whole, self.delta, self.is_end = path, prompt, whole, delta, is_end

    def request(self, case, streamed):
        body = {name: value for name, value in case.items() if name != "prompt"}
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
    Dialect("/v1/chat/completions", lambda case: {"messages": user_messages(case)},
            lambda answer: answer["choices"][0]["message"]["content"] or "",
            lambda event: first_choice("delta")(event).get("content", ""), lambda event: event == "[DONE]"),
    Dialect("/v1/messages", lambda case: {"messages": user_messages(case)},
            lambda answer: "".join(block["text"] for block in answer["content"]),
            lambda event: event.get("delta", {}).get("text", ""), lambda event: event["type"] == "message_stop"),
    Dialect("/v1/responses", lambda case: {"input": case["prompt"]},
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
    def __init__(self, port, cases, texts, n_requests, seed):
        self.port, self.cases, self.texts, self.left, self.seed = port, cases, texts, n_requests, seed
        self.lock = threading.Lock()
        self.counts = {"equal": 0, "full": 0, "refused": 0, "left": 0}
        self.faults = []

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def run(self, thread):
        rng = random.Random(self.seed * 1000 + thread)
        connection = None
        while self.take():
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", self.port), timeout=300)
            try:
                if not self.one(connection, rng):
                    connection.close()
                    connection = None
            except Exception as error:  # whatever it is, it is a finding
                with self.lock:
                    self.faults.append(repr(error))
                connection = None

    def one(self, connection, rng):
        """Makes one request; returns whether the connection can be used again."""
        i = rng.randrange(len(self.cases))
        case = self.cases[i]
        streamed = rng.random() < 0.5
        is_chat = rng.random() < 0.5
        dialect = rng.choice(CHAT if is_chat else RAW)
        message = dialect.request(case, streamed)
        kind = rng.random()
        if kind < 0.1:  # leaves before or within the answer
            connection.sendall(message[: rng.randrange(1, len(message) + 1)])
            time.sleep(rng.random() * 0.05)
            self.count("left")
            return False
        if kind < 0.2:  # a broken body
            broken = bytearray(message)
            for _ in range(3):
                broken[rng.randrange(message.index(b"\r\n\r\n") + 4, len(message))] = rng.randrange(256)
            message = bytes(broken)
        if kind > 0.9:  # a slow sender
            for at in range(0, len(message), 40):
                connection.sendall(message[at : at + 40])
                time.sleep(0.002)
        else:
            connection.sendall(message)
        status, body = read_answer(connection.makefile("rb"))
        if kind < 0.2:
            self.count("refused" if status == 400 else "left")
        elif status == 503:
            self.count("full")
            with self.lock:
                self.left += 1  # another one instead
            time.sleep(0.1)
        elif status != 200:
            raise ValueError(f"status {status}: {body[:200]}")
        elif dialect.text_of(body, streamed) != self.texts[i][is_chat]:
            raise ValueError(f"another text for {case} by {dialect.path}")
        else:
            self.count("equal")
        return True


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def get(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return read_answer(connection.makefile("rb"))[1].decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--distinct", type=int, default=20)
    parser.add_argument("--connections", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-m", dest="model")
    options = parser.parse_args()
    model = ["-m", options.model] if options.model else []
    rng = random.Random(options.seed)
    cases = make_cases(options.distinct, rng)
    texts = [expected_texts(options.program, model, case) for case in cases]
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        # So little memory for earlier texts is full after a few requests, and then it does not grow.
        server = subprocess.Popen([options.program, "serve", "--port", "0", "--log-file", log, "--tables", "off", "-q",
                                   "--kept-memory", "16M", *model])
        try:
            port = None
            while port is None and server.poll() is None:
                time.sleep(0.05)
                if os.path.exists(log):
                    found = re.search(r"listening at http://127\.0\.0\.1:(\d+)", open(log, encoding="utf-8").read())
                    port = int(found[1]) if found else None
            memory = []
            # Memory is compared after each part; in the first one, the KV cache and the draft tables grow to their size.
            third = options.requests // 3
            for part, n_requests in enumerate([third, options.requests - third]):
                trial = Trial(port, cases, texts, n_requests, options.seed * 10 + part)
                threads = [threading.Thread(target=trial.run, args=(i,)) for i in range(options.connections)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                memory.append(resident_kib(server.pid))
                print(f"part {part + 1}: {trial.counts}, {memory[-1]} KiB", *trial.faults[:5], sep="\n  ")
                if trial.faults or server.poll() is not None:
                    return 1
                if trial.counts["equal"] <= n_requests // 50:
                    print("too few answers were compared")
                    return 1
            end = time.time() + 60
            while '"is_processing":true' in get(port, "/slots") and time.time() < end:
                time.sleep(0.05)
            if '"is_processing":true' in get(port, "/slots"):
                print("the slot is stuck")
                return 1
            if memory[1] > memory[0] * 1.05:
                print("memory grows")
                return 1
        finally:
            server.terminate()
            code = server.wait()
    print(f"exit code {code}")
    return 0 if code == 143 else 1


if __name__ == "__main__":
    sys.exit(main())
