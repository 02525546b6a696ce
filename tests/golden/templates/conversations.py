"""The conversations that the templates of models are rendered with: what chats and tools hand to them, and what they refuse.

A case is a dict: name, messages, and, where they are not the default, tools, documents, add_generation_prompt (true) and
variables. Every case gets the variables bos_token and eos_token as well.
"""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "The city and country, e.g. \"Köln, DE\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            },
            "required": ["place"],
        },
        "return": {"type": "string", "description": "The weather in words."},
    },
}
NOTHING = {"type": "function", "function": {"name": "ping", "description": "Nothing to give.",
                                            "parameters": {"type": "object", "properties": {}}}}
# Everything that a schema can say and some template looks at.
SCHEMA = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a journey",
        "parameters": {
            "type": "object",
            "properties": {
                "stops": {"type": "array", "description": "Where to", "items": {"type": "string"}},
                "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                "classes": {"type": "array", "items": {"type": "string", "enum": ["first", "second"]}},
                "loose": {"type": "array"},
                "people": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                              "required": ["name"]},
                },
                "seat": {"type": "object", "description": "Which seat",
                         "properties": {"row": {"type": "integer", "minimum": 1, "maximum": 60},
                                        "side": {"type": "string", "nullable": True}}},
                "free": {"type": "object", "additionalProperties": {"type": "number"}},
                "when": {"oneOf": [{"type": "string", "format": "date", "description": "a day", "default": "today"},
                                   {"type": "integer", "format": "unix"}], "description": "The day."},
                "choice": {"type": ["string", "integer"], "default": 3},
                "price": {"type": "number", "description": "At most", "default": 9.5, "examples": [1.5, 20, "it's"]},
                "class": {"type": "string", "enum": ["a", "b"], "default": "a", "maxLength": 1, "minLength": 1},
                "fast": {"type": "boolean", "default": False, "nullable": True},
                "any": {},
            },
            "required": ["stops", "when"],
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, identifier="abcdefg12"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, identifier="abcdefg12", name="get_weather"):
    return {"role": "tool", "content": text, "tool_call_id": identifier, "name": name}


TALK = [user("Who are you?"), assistant("A model."), user("And who am I?")]
CALLING = [user("How is the weather in Köln?"), assistant(None, tool_calls=[call("get_weather", {"place": "Köln, DE"})])]
ANSWERED = CALLING + [result("11 °C, \"rain\"")]
ODD = "  Ünïcode 你好 🙂 \"quoted\" 'single' <b>&amp;</b> back\\slash {{ no_template }} {% if %}\n\n\ttab \n "
DOCUMENTS = [{"doc_id": 1, "title": "One", "text": "First text."}, {"doc_id": "b", "title": "Two", "text": "Zwei\nZeilen"}]

CASES = [
    {"name": "one user turn", "messages": [user("Hello!")]},
    {"name": "one user turn, no generation prompt", "messages": [user("Hello!")], "add_generation_prompt": False},
    {"name": "system and user", "messages": [system("Be brief."), user("Hello!")]},
    {"name": "several turns", "messages": TALK},
    {"name": "several turns with system", "messages": [system(" Be brief. ")] + TALK},
    {"name": "ends with the assistant", "messages": [system("Be brief.")] + TALK[:2], "add_generation_prompt": False},
    {"name": "ends with the assistant, generation prompt", "messages": TALK[:2]},
    {"name": "odd text", "messages": [system(ODD), user(ODD), assistant(ODD), user(ODD)]},
    {"name": "empty texts", "messages": [system(""), user(""), assistant(""), user("")]},
    {"name": "system alone", "messages": [system("Be brief.")]},
    {"name": "system in the middle", "messages": TALK[:2] + [system("Now be long.")] + TALK[2:]},
    {"name": "two users in a row", "messages": [user("One"), user("Two")]},
    {"name": "assistant first", "messages": [assistant("Welcome!"), user("Hello!")]},
    {"name": "unknown role", "messages": [user("Hello!"), {"role": "narrator", "content": "Night fell."}]},
    {"name": "no messages", "messages": []},
    {"name": "no content", "messages": [user("Hello!"), {"role": "assistant"}]},
    {"name": "content of parts", "messages": [user([{"type": "text", "text": "What is this?"}, {"type": "image"}])]},
    {"name": "unknown part", "messages": [user([{"type": "smell", "smell": "tar"}])]},
    {"name": "tools offered", "messages": [user("How is the weather?")], "tools": [WEATHER, NOTHING]},
    {"name": "tools offered, with system", "messages": [system("Be brief."), user("Weather?")], "tools": [WEATHER]},
    {"name": "a rich schema", "messages": [user("Book it.")], "tools": [SCHEMA, WEATHER]},
    {"name": "tools and no messages", "messages": [], "tools": [WEATHER]},
    {"name": "tool called", "messages": CALLING, "tools": [WEATHER], "add_generation_prompt": False},
    {"name": "tool answered", "messages": ANSWERED, "tools": [WEATHER]},
    {"name": "tool answered and said", "messages": [system("Be brief.")] + ANSWERED + [assistant("Wet."), user("Thanks!")],
     "tools": [WEATHER]},
    {"name": "arguments as text", "tools": [WEATHER],
     "messages": [user("Weather?"), assistant("", tool_calls=[call("get_weather", '{"place": "Köln"}')]), result("wet")]},
    {"name": "two tools at once", "tools": [WEATHER, NOTHING],
     "messages": [user("Weather twice?"),
                  assistant(None, tool_calls=[call("get_weather", {"place": "Köln"}, "aaaaaaaa1"),
                                              call("get_weather", {"place": "Bonn", "unit": "celsius"}, "aaaaaaaa2")]),
                  result("wet", "aaaaaaaa1"), result("dry", "aaaaaaaa2"), assistant("Wet and dry."), user("Odd.")]},
    {"name": "call with content", "tools": [WEATHER],
     "messages": [user("Weather?"), assistant("I look.", tool_calls=[call("get_weather", {"place": "Köln"})]),
                  result("wet")]},
    {"name": "bad call id", "tools": [WEATHER],
     "messages": [user("Weather?"), assistant("", tool_calls=[call("get_weather", {}, "x")]), result("wet", "x")]},
    {"name": "result without a call", "messages": [user("Weather?"), result("wet"), user("Oh.")]},
    {"name": "structured result", "tools": [WEATHER],
     "messages": CALLING + [{**result(""), "content": {"degrees": 11, "words": ["wet", "cold"]}}]},
    {"name": "reasoning", "messages": [user("1+1?"), assistant("2", reasoning_content="One and one.\n"), user("2+2?"),
                                       assistant("4", reasoning_content="\nTwo and two.")],
     "add_generation_prompt": False},
    {"name": "reasoning in the text", "messages": [user("1+1?"), assistant("<think>\nHm.\n</think>\n\n2"), user("2+2?")]},
    {"name": "reasoning by another name", "messages": [user("1+1?"), assistant("2", thinking="Hm."), user("2+2?")]},
    {"name": "reasoning with a call", "tools": [WEATHER],
     "messages": [user("Weather?"), assistant("", reasoning_content="I must look.",
                                              tool_calls=[call("get_weather", {"place": "Köln"})]), result("wet")]},
    {"name": "thinking on", "messages": TALK, "variables": {"enable_thinking": True, "thinking": True}},
    {"name": "thinking off", "messages": TALK, "variables": {"enable_thinking": False, "thinking": False}},
    {"name": "effort", "messages": TALK, "variables": {"reasoning_effort": "high", "model_identity": "You are a test."}},
    {"name": "switches in the system text", "messages": [system("Be brief. /no_think"), user("Hello!")]},
    {"name": "documents", "messages": TALK, "documents": DOCUMENTS, "variables": {"enable_citations": True}},
    {"name": "documents and tools", "messages": TALK, "documents": DOCUMENTS, "tools": [WEATHER],
     "variables": {"controls": {"citations": True, "length": "short"}, "available_tools": [WEATHER]}},
    {"name": "controls", "messages": TALK, "documents": DOCUMENTS,
     "variables": {"controls": {"citations": True, "hallucinations": True}}},
    {"name": "builtin tools", "messages": [user("Search."), assistant("", tool_calls=[call("brave_search", {"query": "a"})]),
                                           {"role": "ipython", "content": "found"}],
     "variables": {"builtin_tools": ["browser", "python", "brave_search", "code_interpreter"], "date_string": "1 May 2025"}},
    {"name": "tools in the system turn", "messages": [system("Be brief."), user("Weather?")], "tools": [WEATHER],
     "variables": {"tools_in_user_message": False, "custom_tools": [NOTHING]}},
    {"name": "functions as text", "messages": TALK, "variables": {"functions": "[{\"name\": \"f\"}]", "datetime": "noon"}},
    {"name": "functions, roles refused", "messages": [{"role": "Narrator", "content": "x"}],
     "variables": {"functions": "[]", "datetime": "noon"}},
    {"name": "functions and calls", "messages": [system("Be brief.")] + ANSWERED,
     "variables": {"functions": "[]", "datetime": "noon"}},
    {"name": "channels in the text", "messages": [user("Hi"), assistant("<|channel|>final<|message|>x"), user("Hi")]},
    {"name": "code interpreter", "messages": TALK, "tools": [{"type": "code_interpreter"}, WEATHER["function"]]},
]
