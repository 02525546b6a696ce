#!/usr/bin/env python3
"""Records the requests of the Python package of Anthropic. usage: pip install anthropic; record_anthropic.py FOLDER"""
import sys

from anthropic import Anthropic

from recording import record

MESSAGES = [{"role": "user", "content": "Hi"}]
SYSTEM = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
TOOLS = [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}]
HISTORY = MESSAGES + [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]}]
CALLS = {
    "messages": lambda c: c.messages.create(model="claude-opus-5", max_tokens=24, system=SYSTEM, messages=MESSAGES),
    "messages_stream": lambda c: c.beta.messages.create(model="claude-opus-5", max_tokens=24, messages=HISTORY,
                                                        tools=TOOLS, stream=True),
    "count_tokens": lambda c: c.messages.count_tokens(model="claude-opus-5", messages=MESSAGES, tools=TOOLS),
}

record(sys.argv[1], lambda url: Anthropic(base_url=url, api_key="sk-none", max_retries=0), CALLS)
