"""What the templates of models are rendered with: 22 conversations, three sets of tools, four sets of options, each with each."""

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
# Integers, floats and bounds come through as they came.
NUMBERS = {
    "type": "function",
    "function": {
        "name": "count",
        "description": "Counts <b>things</b> & \"words\"",
        "parameters": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615, "default": -5},
                "m": {"type": "integer", "maximum": 9223372036854775807, "minimum": -9223372036854775808},
                "big": {"type": "integer", "maximum": 99999999999999999999999},
                "x": {"type": "number", "minimum": 1.0, "maximum": 1e16, "multipleOf": 0.1, "default": 1e-07},
            },
            "required": ["n"],
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

TALKS = {
    "one user turn": [user("Hello!")],
    "system and user": [system(" Be brief. "), user("Hello!")],
    "several turns": TALK,
    "several turns with system": [system("Be brief.")] + TALK,
    "ends with the assistant": [system("Be brief.")] + TALK[:2],
    "odd text": [system(ODD), user(ODD), assistant(ODD), user(ODD)],
    "empty texts": [system(""), user(""), assistant(""), user("")],
    "system alone or in the middle": TALK[:2] + [system("Now be long.")] + TALK[2:],
    "two users in a row, assistant first": [assistant("Welcome!"), user("One"), user("Two")],
    "unknown role": [user("Hello!"), {"role": "narrator", "content": "Night fell."}],
    "no messages": [],
    "no content": [user("Hello!"), {"role": "assistant"}],
    "content of parts": [user([{"type": "text", "text": "What is this?"}, {"type": "image"}])],
    "tool called": CALLING,
    "tool answered": ANSWERED,
    "tool answered and said": [system("Be brief.")] + ANSWERED + [assistant("Wet."), user("Thanks!")],
    "arguments as text": [user("Weather?"), assistant("", tool_calls=[call("get_weather", '{"place": "Köln"}')]),
                          result("wet")],
    "two tools at once": [user("Weather twice?"),
                          assistant("I look.", tool_calls=[call("get_weather", {"place": "Köln"}, "aaaaaaaa1"),
                                                           call("get_weather", {"n": 1.0, "m": [1, None, True]}, "aaaaaaaa2")]),
                          result("wet", "aaaaaaaa1"), result({"degrees": 11, "words": ["wet", "cold"]}, "aaaaaaaa2"),
                          assistant("Wet and dry."), user("Odd.")],
    "result without a call": [user("Weather?"), result("wet"), user("Oh.")],
    "reasoning": [user("1+1?"), assistant("2", reasoning_content="One and one.\n"), user("2+2?"),
                  assistant("4", reasoning_content="\nTwo and two.")],
    "reasoning in the text": [user("1+1?"), assistant("<think>\nHm.\n</think>\n\n2"), user("2+2?"),
                              assistant("<|channel|>final<|message|>x")],
    "reasoning with a call": [user("Weather?"), assistant("", reasoning_content="I must look.",
                              tool_calls=[call("brave_search", {"query": "a"})]), {"role": "ipython", "content": "found"}],
}

TOOLS = {"none": None, "one": [WEATHER], "rich": [SCHEMA, WEATHER, NUMBERS, NOTHING]}

DOCUMENTS = [{"doc_id": 1, "title": "One", "text": "First text."}, {"doc_id": "b", "title": "Two", "text": "Zwei\nZeilen"}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
OPTIONS = {
    "plain": {"add_generation_prompt": True},
    "no generation prompt": {"add_generation_prompt": False},
    "thinking off": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False, "reasoning_effort": "low",
                     "tools_in_user_message": False, "custom_tools": [NOTHING], "date_string": "1 May 2025",
                     "functions": "[{\"name\": \"f\"}]", "datetime": "noon"},
    "documents": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "documents": DOCUMENTS,
                  "enable_citations": True, "controls": {"citations": True, "hallucinations": True, "length": "short"},
                  "available_tools": [WEATHER], "model_identity": "You are a test.", "reasoning_effort": "high",
                  "builtin_tools": ["browser", "python", "brave_search", "code_interpreter"]},
}
