#!/usr/bin/env python3
"""Records the requests that the Python package of OpenAI sends, as bytes, into FOLDER: the tests replay them without the
package. usage: pip install openai; record_openai.py FOLDER"""
import os
import socket
import sys
import threading

from openai import OpenAI

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}}}}}]
CALLS = {
    "chat": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, seed=7, max_tokens=24),
    "chat_stream": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True,
                                                       stream_options={"include_usage": True}),
    "chat_tools": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, tools=TOOLS, tool_choice="auto"),
    "completion": lambda c: c.completions.create(model="gpt-4o", prompt="Hi", temperature=0, stop=["\n"]),
    "models": lambda c: c.models.list(),
}


def read_request(server, received):
    connection, _ = server.accept()
    with connection:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        while lengths and len(body) < lengths[0]:
            body += connection.recv(65536)
        received.append(head + b"\r\n\r\n" + body)


for name, call in CALLS.items():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, received = server.getsockname()[1], []
        thread = threading.Thread(target=read_request, args=(server, received))
        thread.start()
        try:
            call(OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-none", max_retries=0))
        except Exception:  # no answer comes
            pass
        thread.join()
        with open(os.path.join(sys.argv[1], name + ".http"), "wb") as file:
            file.write(received[0].replace(str(port).encode(), b"8080"))
