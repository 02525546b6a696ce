#!/usr/bin/env python3
"""Measures what `slipstream serve` keeps between requests (--kept-memory), on a real model with a chat template:

agent   a conversation of many turns over a long list of tools: each turn may compute the new message, the last answer
        and 511 tokens, and `cached_tokens` must say so
repeat  a long prompt, two others of half its length, and the long prompt again: time to the first token
title   a conversation, and the same with a request for its title before the last turn: time to the first tokens of both
retry   a client that gives up a long prompt and sends it again after another request

usage: try_kept.py PROGRAM [-m MODEL] [--kept-memory SIZE] [--tokens N] [--tools N] [--turns N] [--only NAME,...]
       [-- OPTIONS OF serve]
Answers are compared with those of `generate --messages`. Exit code 1 if a bound is not kept. Needs Python's library
alone. Times are only as good as the machine is quiet.
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
import time

WORDS = ("the a wolf fox king daughter forest went said saw old small grey and but because river house door night came "
         "under over bread stone bird song golden key away again never home").split()


class Server:
    def __init__(self, program, arguments):
        self.folder = tempfile.TemporaryDirectory()
        log = os.path.join(self.folder.name, "log")
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--log-file", log, "--tables", "off", "-v", *arguments],
            stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            time.sleep(0.05)
            text = open(log, encoding="utf-8").read() if os.path.exists(log) else ""
            if "is served" in text:
                self.port = int(re.search(r"listening at http://127\.0\.0\.1:(\d+)", text)[1])
                self.log = log
                return
        raise RuntimeError("the server does not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def send(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else b""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=3600)
        connection.sendall(
            f"{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def ask(self, method, path, body=None):
        with self.send(method, path, body) as connection:
            return connection.makefile("rb").read().split(b"\r\n\r\n", 1)[1].decode()

    def n_tokens(self, text):
        return len(json.loads(self.ask("POST", "/tokenize", {"content": text}))["tokens"])

    def metric(self, name):
        return int(re.search(rf"^slipstream:{name} (\d+)", self.ask("GET", "/metrics"), re.M)[1])

    def chat(self, messages, max_tokens, **fields):
        """Returns (text, usage, seconds to the first text)."""
        body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}, **fields}
        began = time.monotonic()
        text, usage, first = "", None, None
        with self.send("POST", "/v1/chat/completions", body) as connection:
            for line in connection.makefile("rb"):
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(event["error"])
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text += choice["delta"].get("content") or ""
                if first is None and text:
                    first = time.monotonic() - began
        return text, usage, first


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def text_of_tokens(server, rng, n_tokens):
    """A text of about `n_tokens` tokens."""
    sample = words(rng, 500)
    return words(rng, n_tokens * 500 // server.n_tokens(sample))


def generated(options, messages, max_tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"messages": messages}, file)
        file.flush()
        run = subprocess.run([options.program, "generate", *options.model_options, "--messages", file.name, "--temperature", "0",
                              "--max-tokens", str(max_tokens), "--tables", "off", "-q"], capture_output=True, check=True)
    return run.stdout.decode()


def said(content, role="user"):
    return {"role": role, "content": content}


def try_agent(server, options, rng):
    tools = "You can call these tools: " + text_of_tokens(server, rng, options.tools)
    messages = [said(tools, "system")]
    ok, last, cached = True, "", 0
    for turn in range(options.turns):
        message = f"Turn {turn}: " + words(rng, 12)
        messages.append(said(message))
        text, usage, first = server.chat(messages, 24)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        computed = usage["prompt_tokens"] - cached
        # Of the new message and the last answer, the template's own tokens are a part.
        most = server.n_tokens(message) + server.n_tokens(last) + 511
        is_good = turn == 0 or computed <= most
        ok = ok and is_good
        print(f"agent, turn {turn + 1}: {usage['prompt_tokens']} tokens, {cached} kept, {computed} computed"
              f" (at most {most if turn else '-'}), first token after {first:.3f} s{'' if is_good else '  WRONG'}")
        if turn == options.turns - 1 and not options.no_compare:
            expected = generated(options, messages, 24)
            if text != expected:
                print(f"another answer than generate's: {text!r}, {expected!r}")
                ok = False
        messages.append(said(text, "assistant"))
        last = text
    return ok


def try_repeat(server, options, rng):
    long = [said(text_of_tokens(server, rng, options.tokens))]
    others = [[said(text_of_tokens(server, rng, options.tokens // 2))] for _ in range(2)]
    text, usage, first = server.chat(long, 8)
    print(f"repeat: {usage['prompt_tokens']} tokens, first token after {first:.3f} s")
    for other in others:
        _, usage, seconds = server.chat(other, 8)
        print(f"  another prompt: {usage['prompt_tokens']} tokens, first token after {seconds:.3f} s")
    again, usage, second = server.chat(long, 8)
    print(f"  again: {usage['prompt_tokens_details']['cached_tokens']} kept, first token after {second:.3f} s,"
          f" {100 * second / first:.2f} % of the first time")
    return second <= 0.03 * first and again == text


def try_title(server, options, rng):
    system = said("You are a storyteller. " + text_of_tokens(server, rng, options.tools), "system")

    def conversation(with_title):
        messages = [system, said("Tell me of the wolf. " + words(rng, 20))]
        text, _, _ = server.chat(messages, 40)
        messages += [said(text, "assistant"), said("And then? " + words(rng, 20))]
        title_seconds = None
        if with_title:
            title = [said("Give a title of at most five words for this chat: " + text + " " + words(rng, 150))]
            _, _, title_seconds = server.chat(title, 8)
        _, usage, seconds = server.chat(messages, 8)
        return seconds, title_seconds, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]

    conversation(False)  # the system text is kept from now on, and the drafter knows how long passes take
    plain, titled, titles, alone = [], [], [], []
    for _ in range(options.pairs):
        seconds, _, n_plain = conversation(False)
        plain.append(seconds)
        seconds, title_seconds, n_titled = conversation(True)
        titled.append(seconds)
        titles.append(title_seconds)
        # The request for a title without a conversation before it: after another one.
        title = [said("Give a title of at most five words for this chat: " + words(rng, 190))]
        server.chat([said("Give a title of at most five words for this chat: " + words(rng, 190))], 8)
        alone.append(server.chat(title, 8)[2])
    middle = options.pairs // 2
    next_ratio = sorted(titled)[middle] / sorted(plain)[middle]
    title_ratio = sorted(titles)[middle] / sorted(alone)[middle]
    print(f"title: next turn {sorted(plain)[middle]:.3f} s, after a title {sorted(titled)[middle]:.3f} s: {next_ratio:.3f}x"
          f" ({n_plain} and {n_titled} tokens computed); title {sorted(titles)[middle]:.3f} s, alone"
          f" {sorted(alone)[middle]:.3f} s: {title_ratio:.3f}x")
    return next_ratio <= 1.1 and title_ratio <= 1.1


def try_retry(server, options, rng):
    prompt = [said(text_of_tokens(server, rng, options.tokens))]
    body = {"messages": prompt, "max_tokens": 4, "temperature": 0, "stream": True, "return_progress": True}
    done = 0
    with server.send("POST", "/v1/chat/completions", body) as connection:
        for line in connection.makefile("rb"):
            if b"prompt_progress" in line:
                progress = json.loads(line[6:])["prompt_progress"]
                done = progress["processed"]
                if done > progress["total"] // 2:
                    break
    server.chat([said(words(rng, 100))], 4)
    _, usage, _ = server.chat(prompt, 4)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    print(f"retry: given up after {done} tokens; {cached} of {usage['prompt_tokens']} kept")
    return cached >= done // 512 * 512 - 512 and done > 0


def main():
    tests = {"agent": try_agent, "repeat": try_repeat, "title": try_title, "retry": try_retry}
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("-m", dest="model")
    parser.add_argument("--kept-memory", default="1G")
    parser.add_argument("--tokens", type=int, default=7900, help="of the repeated prompt")
    parser.add_argument("--tools", type=int, default=6000, help="tokens of tools")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--no-compare", action="store_true")
    parser.add_argument("--only", default=",".join(tests))
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.rest = sys.argv[end + 1 :]
    options.model_options = ["-m", options.model] if options.model else []
    rng = random.Random(1)
    failed = []
    for name in options.only.split(","):
        with Server(options.program,
                    [*options.model_options, "--kept-memory", options.kept_memory, *options.rest]) as server:
            if not tests[name](server, options, rng):
                failed.append(name)
            figures = {figure: server.metric(figure) for figure in ("kept_bytes", "kept_limit_bytes", "kept_hits_total",
                                                                   "kept_restored_tokens_total", "kept_evictions_total")}
            print(f"  {figures}")
            if figures["kept_bytes"] > figures["kept_limit_bytes"]:
                failed.append("bound")
    print("failed: " + ", ".join(failed) if failed else "all bounds are kept")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
