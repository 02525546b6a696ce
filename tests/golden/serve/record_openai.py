#!/usr/bin/env python3
"""Records the requests of the Python package of OpenAI. usage: pip install openai; record_openai.py FOLDER"""
import sys

from openai import OpenAI

from recording import record

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
FUNCTIONS = [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False},
             {"type": "web_search"}]
ITEMS = [{"role": "user", "content": "Hi"},
         {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
         {"type": "function_call_output", "call_id": "c1", "output": "r"}]
CALLS = {
    "chat": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, seed=7, max_tokens=24),
    "chat_stream": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True,
                                                       stream_options={"include_usage": True}),
    "chat_tools": lambda c: c.chat.completions.create(model="gpt-4o", messages=MESSAGES, tools=TOOLS, tool_choice="auto"),
    "completion": lambda c: c.completions.create(model="gpt-4o", prompt="Hi", temperature=0, stop=["\n"]),
    "models": lambda c: c.models.list(),
    "responses": lambda c: c.responses.create(model="gpt-5", input="Hi", instructions="Be brief.", max_output_tokens=24,
                                              store=False),
    "responses_stream": lambda c: c.responses.create(model="gpt-5", input=ITEMS, tools=FUNCTIONS, stream=True),
}

record(sys.argv[1], lambda url: OpenAI(base_url=url + "/v1", api_key="sk-none", max_retries=0), CALLS)
