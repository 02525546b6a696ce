"""The server's page in a headless Chromium, against the built program with the bundled model.

usage: page_test.py PROGRAM [--screenshots FOLDER]   FOLDER: where the screenshots go; without it none are kept

Exit code 77, and a line that says so, if there is no Chromium. Skipped cases do not pass: the whole run is skipped.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, find_browser  # noqa: E402

PROGRAM = ""
SCREENSHOTS = None
SAMPLE = """# A tale in *two* parts

The **wolf** met a `fox` and said: see [the rules](https://example.org/rules), or [never](javascript:alert(1)).

1. first, listen
2. then, answer
   - softly
   - kindly

> A quote
> of two lines

| animal | legs |
|:-------|-----:|
| fox    | 4    |
| `a\\|b` | 2    |

```python
def tale():
    return "<b>once</b>"
```

<img src=x onerror="document.title='broken'"> ![remote](https://example.org/a.png) ~~old~~ snake_case_name 2 * 3 * 4

---
"""


class Server:
    """The program, serving on a free port. Nothing of the caller's settings reaches it."""

    def __init__(self, folder, *options, key=None):
        self.log = os.path.join(folder, f"log-{time.monotonic_ns()}")
        environment = {"PATH": os.environ["PATH"], "HOME": folder}
        if key:
            environment["SLIPSTREAM_API_KEY"] = key
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--tables", "off", "--log-file", self.log, *options],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + 60
        while not (place := re.search(r"listening at (http://127\.0\.0\.1:\d+)", self.text())):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"the program does not listen: {self.text()}")
            time.sleep(0.02)
        self.address = place[1]

    def text(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


def run_program(folder, *arguments, text=""):
    return subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, text=True, timeout=120, cwd=folder,
                          env={"PATH": os.environ["PATH"], "HOME": folder})


class PageCase(unittest.TestCase):
    OPTIONS = ("--device-memory", "28M", "--max-tokens", "60")
    KEY = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="slipstream-page-test-")
        cls.server = Server(cls.folder, *cls.OPTIONS, key=cls.KEY)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        shutil.rmtree(cls.folder, ignore_errors=True)
        assert code == 130, f"the server ended with {code}"

    def setUp(self):
        self.downloads = tempfile.mkdtemp(dir=self.folder)
        self.browser = Browser(find_browser(), self.downloads)
        self.addCleanup(self.browser.close)
        self.run_js, self.wait = self.browser.run, self.browser.wait
        self.look(1280, 800, "light")
        self.browser.visit(self.server.address)

    def tearDown(self):
        expected = getattr(self, "expected_complaints", "^$")
        complaints = [each for each in self.browser.complaints() if not re.search(expected, each)]
        self.assertEqual(complaints, [])
        foreign = [each for each in self.browser.requested()
                   if not each.startswith((self.server.address + "/", "blob:" + self.server.address, "data:"))]
        self.assertEqual(foreign, [])

    def look(self, width, height, scheme, phone=False):
        self.browser.resize(width, height, phone)
        self.browser.prefer(scheme)

    def ready(self):
        self.wait("$('state').textContent === 'Ready' && Known.model !== ''")

    def click(self, selector):
        self.run_js(f"document.querySelector({json.dumps(selector)}).click()")

    def press_button(self, name, within="document"):
        self.run_js(f"[...{within}.querySelectorAll('button')].find((each) => !each.hidden && "
                    f"each.textContent === {json.dumps(name)}).click()")

    def say(self, text):
        n_before = self.run_js("talk.messages.length")
        self.run_js("$('say').focus()")
        self.browser.type(text)
        self.browser.press("Enter")
        # A short answer may have ended when this looks.
        self.wait(f"running !== null || talk.messages.length > {n_before}")

    def answered(self):
        self.wait("running === null")
        return self.run_js("talk.messages")

    def downloaded(self, pattern):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.browser.pump()
            for name in os.listdir(self.downloads):
                if re.fullmatch(pattern, name):
                    return os.path.join(self.downloads, name)
        raise TimeoutError(f"{pattern} was not downloaded")

    def keep_screenshot(self, name):
        self.browser.pump(0.3)
        if SCREENSHOTS:
            self.browser.screenshot(os.path.join(SCREENSHOTS, name + ".png"))

    def assert_fits(self):
        widths = self.run_js("[document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(widths[0], widths[1])
        outside = self.run_js("""[...document.querySelectorAll('header *, main, #composer *, #log, #notice')]
            .filter((each) => { const box = each.getBoundingClientRect();
                return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1) && !each.closest('.code, .scroll'); })
            .map((each) => each.outerHTML.slice(0, 80))""")
        self.assertEqual(outside, [])

    def assert_readable(self):
        """Texts have the contrast that WCAG 2 demands at level AA (4.5)."""
        low = self.run_js("""(() => {
            const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
            const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data]; };
            const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
                return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const back = (node) => { for (let at = node; at; at = at.parentElement) {
                const c = rgb(getComputedStyle(at).backgroundColor); if (c[3] === 255) return c; }
                return rgb(getComputedStyle(document.documentElement).getPropertyValue('--back') || 'white'); };
            const low = [];
            for (const node of document.querySelectorAll('body *')) {
                const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
                const box = node.getBoundingClientRect();
                if (!own || box.width < 2 || box.height < 2 || getComputedStyle(node).visibility === 'hidden') continue;
                const [a, b] = [light(rgb(getComputedStyle(node).color)), light(back(node))].sort((x, y) => y - x);
                const contrast = (a + 0.05) / (b + 0.05);
                if (contrast < 4.5) low.push(`${contrast.toFixed(2)} ${node.outerHTML.slice(0, 90)}`);
            }
            return low; })()""")
        self.assertEqual(low, [])


class ThePage(PageCase):
    def test_a_chat_by_keyboard_and_the_same_by_the_command(self):
        self.ready()
        self.assertEqual(self.run_js("document.activeElement.id"), "say")
        self.browser.type("The wolf said")
        self.browser.press("Enter", shift=True)
        self.assertEqual(self.run_js("$('say').value"), "The wolf said\n")
        self.browser.type("that the fox")
        self.browser.press("Enter")
        self.wait("running !== null")
        self.assertEqual(self.run_js("[$('say').value, $('send').hidden, $('stop').hidden]"), ["", True, False])
        first = self.answered()
        self.say("Then the fox said")
        messages = self.answered()
        self.assertEqual([each["role"] for each in messages], ["user", "assistant", "user", "assistant"])
        self.assertEqual(messages[:2], first)
        for message in (messages[1], messages[3]):
            self.assertNotEqual(message["content"].strip(), "")
            self.assertGreater(message["info"]["tokens"], 0)
        # Each answer is the text of its command, also after more messages have come.
        for i, message in ((0, messages[1]), (1, messages[3])):
            self.press_button("Command", f"document.querySelectorAll('article.assistant')[{i}]")
            self.wait("$('command-dialog').open")
            command = shlex.split(self.run_js("$('command').textContent"))
            self.assertEqual(command[:2], ["slipstream", "generate"])
            self.assertEqual(self.run_js("$('fingerprint').textContent"), message["info"]["fingerprint"])
            self.click("#command-save")
            path = self.downloaded(r"messages( ?\(\d+\))?\.json")
            os.replace(path, os.path.join(self.downloads, "messages.json"))
            said = run_program(self.downloads, *command[1:], "-q")
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(said.stdout, message["content"])
            os.remove(os.path.join(self.downloads, "messages.json"))
            self.browser.press("Escape")
            self.wait("!$('command-dialog').open")
        # Conversations outlive the tab's reload.
        self.browser.visit(self.server.address + "/?again")
        self.ready()
        self.assertEqual(self.run_js("talk.messages"), messages)

    def test_the_engine_is_shown(self):
        self.ready()
        self.wait("document.querySelectorAll('#plan dd').length > 5")
        self.assertIn("weights", self.run_js("$('plan').textContent"))
        self.run_js("""talk.settings.max_tokens = '300'; var seen = { accepted: 0, link: 0, sources: [] };
            setInterval(() => {
                const legend = [...document.querySelectorAll('#legend li')].map((each) => each.textContent);
                seen.sources = [...new Set([...seen.sources, ...legend])];
                seen.accepted = Math.max(seen.accepted, document.querySelectorAll('#tree .tok.accepted').length);
                seen.link = Math.max(seen.link, Number($('links').textContent.match(/copies ([0-9]+) %/)?.[1] ?? 0));
            }, 20)""")
        for text in ("Once upon a time there was a fox. The fox said that the wolf", "Then the king said", "The wolf said",
                     "The fox came in", "Then the fox said", "And the king said that", "Once more the wolf", "The king"):
            self.say(text)
            while self.run_js("running !== null"):
                good = self.run_js("document.querySelectorAll('#tree .tok.accepted').length > 1 && "
                                   "/copies [1-9]/.test($('links').textContent) && document.querySelectorAll('#spark i').length > 9")
                if good and SCREENSHOTS:
                    self.browser.screenshot(os.path.join(SCREENSHOTS, "chat_light.png"))
                self.browser.pump(0.02)
            if self.run_js("seen.accepted > 1 && seen.link > 0 && document.querySelectorAll('#spark i').length > 9"):
                break
        self.assertGreater(self.run_js("seen.accepted"), 1)
        self.assertGreater(self.run_js("seen.link"), 0)
        self.assertGreater(self.run_js("document.querySelectorAll('#spark i').length"), 3)
        self.assert_readable()
        self.wait("$('phase').textContent.includes('has ended')")
        self.assertGreater(float(self.run_js("$('per-pass').textContent")), 1.0)
        # Of all passes: the last one may have had no draft tokens.
        sources = self.run_js("seen.sources")
        self.assertTrue(set(sources) <= {"context", "suffix", "recycling", "model", "bigram", "unigram"}, sources)
        self.assertTrue(sources)
        self.assertEqual(self.run_js("document.querySelectorAll('#tree .tok.sampled').length"), 1)
        self.assertRegex(self.run_js("$('tree').getAttribute('aria-label')"), r"^\d+ draft tokens?, \d+ accepted")
        self.assertRegex(self.run_js("$('links').textContent"), r"copies \d+ % of the time")
        self.click("#hold")
        place = self.run_js("$('step-place').textContent")
        self.assertRegex(place, r"^(\d+) of \1$")
        if not place.startswith("1 "):
            self.click("#step-back")
            self.assertNotEqual(self.run_js("$('step-place').textContent"), place)
        self.click("#hold")

    def test_a_long_prompt_shows_how_far_it_is(self):
        self.ready()
        self.run_js("var seen = { page: '', live: '', bar: 0, queue: '' }; setInterval(() => {"
                    "const waits = document.querySelector('.waits')?.textContent ?? '', phase = $('phase').textContent;"
                    "if (/of 4,... tokens, about .* left/.test(waits)) seen.page = waits;"
                    "if (/of 4,... tokens.*; about .* left/.test(phase)) seen.live = phase;"
                    "seen.queue ||= $('queue').textContent;"
                    "if (!$('prompt-bar').hidden) seen.bar = Math.max(seen.bar, $('prompt-bar').value); }, 10)")
        self.run_js("talk.settings.max_tokens = '5'; $('say').value = 'The fox said. '.repeat(1000); $('composer').requestSubmit()")
        self.wait("running?.waits.startsWith('Reading')")
        self.run_js("var other = fetch('/v1/completions', { method: 'POST', headers: { 'Content-Type': 'application/json' }, "
                    "body: JSON.stringify({ prompt: 'The fox', max_tokens: 2 }) }); 0")
        self.answered()
        self.assertEqual(self.run_js("other.then((answer) => answer.status)"), 200)
        seen = self.run_js("seen")
        self.assertRegex(seen["page"], r"^Reading the prompt: [\d,]+ of 4,\d+ tokens, about (\d+|less than 1) s left$")
        self.assertRegex(seen["live"], r"^Request \d+ reads its prompt: [\d,]+ of 4,\d+ tokens.*; about (\d+|less than 1) s left$")
        self.assertEqual(seen["queue"], "1 request waits")
        self.assertGreater(seen["bar"], 0)
        self.assertLess(seen["bar"], 1)

    def idle(self):
        self.wait("fetch('/slots').then((answer) => answer.json()).then((slots) => !slots[0].is_processing)")

    def test_escape_stops_and_the_answer_goes_on(self):
        self.ready()
        # Within the prompt: nothing of the answer is there, and it can be asked for again.
        # No other test has this prompt: its KV is not kept.
        self.run_js("$('say').value = 'The wolf ran. '.repeat(1000); $('composer').requestSubmit()")
        self.wait("running?.waits.startsWith('Reading')")
        self.browser.press("Escape")
        self.assertEqual(len(self.answered()), 1)
        self.idle()
        self.assertEqual(self.run_js("$('notice').hidden"), True)
        self.assertTrue(self.run_js("[...document.querySelectorAll('article button')].some((each) => each.textContent === 'Answer')"))
        # Within the answer: what there is stays.
        self.run_js("open(newTalk()); talk.settings.max_tokens = '4000'; var timer = setInterval(() => {"
                    "if (running?.message.content.length > 10) "
                    "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true })); }, 2)")
        for text in ("Once upon a time", "The wolf said that", "The king said that", "Then the fox", "There was a"):
            self.say(text)
            messages = self.answered()
            if messages[-1]["info"].get("end") == "stopped":
                break
        self.assertEqual(messages[-1]["info"]["end"], "stopped")
        self.idle()
        self.run_js("clearInterval(timer); talk.settings.max_tokens = '200'")
        self.press_button("Continue")
        self.wait("running !== null")
        further = self.answered()
        self.assertEqual(len(further), len(messages))
        self.assertTrue(further[-1]["content"].startswith(messages[-1]["content"]))

    def test_messages_are_edited_and_answers_made_again(self):
        self.ready()
        self.say("The wolf said")
        before = self.answered()
        self.press_button("Regenerate")
        self.wait("running !== null")
        again = self.answered()
        self.assertEqual(again[0], before[0])
        self.assertEqual(again[1]["info"]["seed"], before[1]["info"]["seed"] + 1)
        self.press_button("Edit", "document.querySelector('article.user')")
        self.assertEqual(self.run_js("document.activeElement.value"), "The wolf said")
        self.run_js("document.activeElement.select()")
        self.browser.type("The king said")
        self.browser.press("Enter")
        self.wait("running !== null")
        edited = self.answered()
        self.assertEqual(len(edited), 2)
        self.assertEqual(edited[0]["content"], "The king said")
        self.press_button("Edit", "document.querySelector('article.user')")
        self.browser.press("Escape")
        self.assertEqual(self.run_js("talk.messages"), edited)

    def test_a_file_goes_to_the_terminal_and_back(self):
        self.ready()
        self.run_js("$('settings-form').seed.value = '7'; $('settings-form').temperature.value = '0.5'; "
                    "$('settings-form').dispatchEvent(new Event('change')); "
                    "for (const name of ['seed', 'temperature']) "
                    "$('settings-form')[name].dispatchEvent(new Event('input', { bubbles: true }))")
        self.say("The wolf said")
        messages = self.answered()
        self.assertEqual(messages[1]["info"]["seed"], 7)
        self.click("#export")
        path = self.downloaded(r"chat-.*\.json")
        chat = run_program(self.downloads, "chat", "--session", path, "--tables", "off", text="The fox said\n")
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertIn("1 exchange", chat.stderr)
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
        self.assertEqual(saved["settings"]["seed"], 7)
        self.assertEqual(saved["settings"]["temperature"], 0.5)
        self.assertEqual([each["content"] for each in saved["messages"][:2]], [each["content"] for each in messages])
        self.assertEqual(len(saved["messages"]), 4)
        self.browser.choose_file("#file", path)
        self.wait("talk.messages.length === 4")
        self.assertEqual(self.run_js("talk.messages.map((each) => each.content)"),
                         [each["content"] for each in saved["messages"]])
        self.assertEqual(self.run_js("[talk.settings.seed, $('settings-form').temperature.value]"), ["7", "0.5"])
        wrong = os.path.join(self.downloads, "wrong.json")
        with open(wrong, "w", encoding="utf-8") as file:
            file.write('{"format": "another"}')
        self.browser.choose_file("#file", wrong)
        self.wait("!$('notice').hidden")
        self.assertIn("wrong.json cannot be imported", self.run_js("$('notice').textContent"))

    def open_sample(self):
        path = os.path.join(self.downloads, "sample.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": "slipstream chat", "version": 1, "model": "m", "system": None, "settings": {}, "messages": [
                {"role": "user", "content": "Show what you can write.\n<b>plainly</b>"},
                {"role": "assistant", "content": SAMPLE, "thought": "It wants *all* forms."}]}, file)
        self.browser.choose_file("#file", path)
        self.wait("document.querySelectorAll('article').length === 2")

    def test_markdown_is_shown_and_markup_is_not_obeyed(self):
        self.ready()
        self.open_sample()
        md = "document.querySelector('article.assistant .text')"
        self.assertEqual(self.run_js(f"[...{md}.children].map((each) => each.tagName)"),
                         ["H1", "P", "OL", "BLOCKQUOTE", "DIV", "DIV", "P", "HR"])
        self.assertEqual(self.run_js(f"[...{md}.querySelectorAll('a')].map((each) => [each.href, each.rel, each.target])"),
                         [["https://example.org/rules", "noopener noreferrer", "_blank"],
                          ["https://example.org/a.png", "noopener noreferrer", "_blank"]])
        self.assertEqual(self.run_js("document.querySelectorAll('img, iframe, script:not([src])').length"), 0)
        self.assertEqual(self.run_js("document.title"), "Slipstream")
        self.assertEqual(self.run_js(f"[...{md}.querySelectorAll('td')].map((each) => each.textContent)"),
                         ["fox", "4", "a|b", "2"])
        self.assertEqual(self.run_js(f"{md}.querySelector('pre').textContent"),
                         'def tale():\n    return "<b>once</b>"')
        self.assertEqual(self.run_js(f"[...{md}.querySelectorAll('ol > li > ul > li')].map((each) => each.textContent)"),
                         ["softly", "kindly"])
        self.assertEqual(self.run_js(f"['strong', 'em', 'code', 'del'].map((tag) => {md}.querySelector(tag).textContent)"),
                         ["wolf", "two", "fox", "old"])
        last = self.run_js(f"{md}.querySelectorAll(':scope > p')[1].textContent")
        self.assertIn("<img src=x onerror=", last)
        self.assertIn("snake_case_name 2 * 3 * 4", last)
        self.assertEqual(self.run_js("document.querySelector('article.user .text').textContent"),
                         "Show what you can write.\n<b>plainly</b>")
        self.assertEqual(self.run_js("document.querySelector('details.thought').open"), False)
        self.press_button("Copy", "document.querySelector('.code')")
        self.wait("document.querySelector('.code button').textContent !== 'Copy'")
        self.assertEqual(self.run_js("document.querySelector('.code button').textContent"), "Copied")
        # A text that grows character by character ends as it does in one piece.
        self.assertTrue(self.run_js(f"""(() => {{ const text = talk.messages[1].content, place = el('div');
            for (let n = 0; n <= text.length; ++n) Markdown.show(place, text.slice(0, n));
            const whole = el('div'); Markdown.show(whole, text); return place.isEqualNode(whole); }})()"""))

    def test_thoughts_are_folded_and_a_cut_stream_is_told(self):
        self.ready()

        def stream(*events, done=True):
            text = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
            self.browser.reply("*/v1/chat/completions", "text/event-stream", text + ("data: [DONE]\n\n" if done else ""))

        def delta(reason=None, **parts):
            return {"system_fingerprint": "f", "choices": [{"index": 0, "delta": parts, "finish_reason": reason}]}

        stream(delta(role="assistant", content=""), delta(reasoning_content="First *this*,"), delta(reasoning_content=" then that."),
               delta(content="The "), delta(content="end."), delta("stop"),
               {"choices": [], "timings": {"cache_n": 1, "prompt_n": 2, "predicted_n": 9, "predicted_per_second": 3.0},
                "slipstream": {"seed": 1, "passes": 3}})
        self.say("Think")
        message = self.answered()[1]
        self.assertEqual([message["thought"], message["content"]], ["First *this*, then that.", "The end."])
        shown = "document.querySelector('article.assistant')"
        self.assertEqual(self.run_js(f"[{shown}.querySelector('details').open, {shown}.querySelector('details em').textContent, "
                                     f"{shown}.querySelector('.text').textContent]"), [False, "this", "The end."])
        self.assertIn("9 tokens · 3.0 tokens/s · 3.00 a pass", self.run_js(f"{shown}.querySelector('.foot').textContent"))
        self.assertIn('"reasoning_content":"First *this*, then that."',
                      self.run_js("JSON.stringify(requestOf(talk.messages, 1))"))
        stream(delta(content="Half a"), {"error": {"message": "the engine failed", "type": "server_error"}}, done=False)
        self.say("More")
        message = self.answered()[3]
        self.assertEqual([message["content"], message["info"]["end"]], ["Half a", "cut off"])
        self.assertEqual(self.run_js("$('notice-text').textContent"), "the engine failed")
        stream(delta(content="Half a"), done=False)  # the connection ends without a word
        self.press_button("Regenerate", "document.querySelectorAll('article.assistant')[1]")
        self.wait("running === null && !$('notice').hidden")
        self.assertEqual(self.run_js("$('notice-text').textContent"), "the connection ended before the answer did")
        self.assertEqual(self.run_js("talk.messages[3].info.end"), "cut off")
        self.browser.reply("", "", None)

    def test_hostile_markdown_costs_little_time(self):
        self.ready()
        for text in ("*a" * 50000, "[" * 50000, "`" * 30000 + "a", "> " * 30000 + "x", "- " * 30000, "|a" * 20000 + "\n" + "|-" * 20000,
                     "_a " * 50000, "![" * 20000, "<http://" * 10000, "(" * 50000, "1. " * 20000, "\\" * 50001, "**a *" * 20000,
                     "# a" + " " * 20000 + "b", "[a](" * 5000, "- a\n" + "\n" * 20000 + "  x", "[a](b(" * 5000):
            seconds = self.run_js(f"""(() => {{ const place = el('div'), began = performance.now();
                Markdown.show(place, {json.dumps(text)}); return (performance.now() - began) / 1000; }})()""")
            self.assertLess(seconds, 2.0, text[:20])

    def test_addresses_may_hold_brackets(self):
        self.ready()
        self.assertEqual(self.run_js("""(() => { const place = el('div');
            Markdown.show(place, "see [x](https://host/A_(b)), # not a heading\\n\\n## C# and F# ##");
            return [place.querySelector('a').href, place.querySelector('p').textContent, place.querySelector('h2').textContent]; })()"""),
            ["https://host/A_(b)", "see x, # not a heading", "C# and F#"])

    def test_both_themes_and_both_widths(self):
        self.ready()
        self.open_sample()
        light = self.run_js("getComputedStyle(document.body).backgroundColor")
        self.assert_readable()
        self.assert_fits()
        self.look(1280, 800, "dark")
        dark = self.run_js("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(light, dark)
        self.assert_readable()
        self.keep_screenshot("markdown_dark")
        self.click("#theme")  # light, whatever the system has
        self.assertEqual(self.run_js("getComputedStyle(document.body).backgroundColor"), light)
        self.click("#theme")
        self.assertEqual(self.run_js("getComputedStyle(document.body).backgroundColor"), dark)
        self.look(1280, 800, "light")
        self.assertEqual(self.run_js("getComputedStyle(document.body).backgroundColor"), dark)
        self.click("#theme")
        self.assertEqual(self.run_js("getComputedStyle(document.body).backgroundColor"), light)
        for scheme in ("light", "dark"):
            self.look(390, 844, scheme, phone=True)
            self.browser.visit(self.server.address + f"/?{scheme}")
            self.ready()
            self.assertEqual(self.run_js("[$('side').hidden, $('live').hidden]"), [True, True])
            self.assert_fits()
            self.assert_readable()
        self.keep_screenshot("phone_dark")
        self.say("The wolf said")
        self.answered()
        self.assert_fits()
        self.click("#toggle-live")
        self.wait("document.querySelectorAll('#plan dd').length > 5")
        self.assert_fits()
        self.keep_screenshot("phone_live_dark")
        self.click("#toggle-side")
        self.assertEqual(self.run_js("[$('side').hidden, $('live').hidden]"), [False, True])
        self.assert_fits()
        self.browser.press("Escape")
        self.assertEqual(self.run_js("[$('side').hidden, document.activeElement.id]"), [True, "toggle-side"])

    def test_every_control_has_a_name_and_is_reached_by_keys(self):
        self.ready()
        self.open_sample()
        self.run_js("$('settings').open = true")
        seen = self.browser.accessible()
        for role, name in (("navigation", "Conversations"), ("main", ""), ("complementary", "The engine, live"),
                           ("log", "Messages"), ("textbox", "Message"), ("button", "Send"), ("button", "New conversation"),
                           ("status", ""), ("heading", "Draft tree"), ("article", "You"), ("article", "The model"),
                           ("banner", ""), ("combobox", "Thoughts"), ("textbox", "Temperature")):
            self.assertIn((role, name), seen)
        nameless = [each for each in seen if each[0] in ("button", "textbox", "link", "combobox", "image", "meter",
                                                           "progressbar", "dialog") and not each[1]]
        self.assertEqual(nameless, [])
        self.run_js("document.activeElement.blur()")
        reached, unseen_focus = [], []
        for _ in range(90):
            self.browser.press("Tab")
            place = self.run_js("""(() => { const at = document.activeElement, style = getComputedStyle(at);
                if (at === document.body) return null;
                return [at.id || at.name || at.textContent.slice(0, 30), style.outlineStyle, parseFloat(style.outlineWidth)]; })()""")
            if place is None:
                continue
            reached.append(place[0])
            if place[1] == "none" or place[2] < 1:
                unseen_focus.append(place)
        self.assertEqual(unseen_focus, [])
        for wanted in ("To the message", "toggle-side", "theme", "toggle-live", "new", "temperature", "seed", "think",
                       "import", "export", "log", "Thoughts", "Copy", "Edit", "say", "send", "hold"):
            self.assertIn(wanted, reached)
        first = reached.index("To the message")
        self.assertEqual(reached[first + 1:first + 4], ["toggle-side", "theme", "toggle-live"])

    def test_a_full_store_is_told_and_the_chat_goes_on(self):
        self.ready()
        self.run_js("localStorage.setItem('slipstream.talk.big', JSON.stringify({ id: 'big', at: 1, title: 'big', system: '', "
                    "settings: {}, messages: [{ role: 'user', content: 'x'.repeat(3999990) }] }))")
        self.say("The wolf said")
        self.wait("!$('notice').hidden")
        self.assertIn("store for conversations is full", self.run_js("$('notice').textContent"))
        messages = self.answered()
        self.assertEqual(len(messages), 2)
        self.assertGreater(len(messages[1]["content"]), 0)

    def test_wrong_settings_and_errors_are_told(self):
        self.expected_complaints = "status of 400"
        self.ready()
        self.run_js("const field = $('settings-form').temperature; field.value = 'hot'; "
                    "field.dispatchEvent(new Event('input', { bubbles: true }))")
        self.run_js("$('say').focus()")
        self.browser.type("The wolf said")
        self.browser.press("Enter")
        self.wait("!$('notice').hidden")
        self.assertIn('The setting "temperature"', self.run_js("$('notice').textContent"))
        self.assertEqual(self.run_js("[$('say').value, talk.messages.length]"), ["The wolf said", 0])
        self.run_js("const one = $('settings-form').temperature; one.value = ''; "
                    "one.dispatchEvent(new Event('input', { bubbles: true })); "
                    "$('say').value = 'word '.repeat(20000); $('composer').requestSubmit()")
        self.wait("$('notice').textContent.includes('context')")
        self.assertEqual(self.run_js("[talk.messages.length, $('send').hidden]"), [1, False])


class ThePageWithAKey(PageCase):
    KEY = "sesame"

    def test_the_key_is_asked_for_once_and_kept_for_the_tab(self):
        self.expected_complaints = "status of 401"
        self.wait("$('key-dialog').open")
        self.assertEqual(self.run_js("document.activeElement.id"), "key")
        self.keep_screenshot("key_light")
        self.browser.type("wrong")
        self.browser.press("Enter")
        self.wait("sessionStorage.getItem('slipstream.key') === 'wrong' && $('key-dialog').open")
        self.browser.type("sesame")
        self.browser.press("Enter")
        self.wait("!$('key-dialog').open")
        self.ready()
        self.wait("document.querySelectorAll('#plan dd').length > 5")
        self.say("The wolf said")
        self.assertEqual(len(self.answered()), 2)
        self.assertEqual(self.run_js("Object.values(localStorage).filter((each) => each.includes('sesame'))"), [])
        self.browser.visit(self.server.address + "/?again")
        self.ready()
        self.assertEqual(self.run_js("$('key-dialog').open"), False)
        self.assertNotIn("sesame", self.server.text())


def main():
    global PROGRAM, SCREENSHOTS
    arguments = sys.argv[1:]
    if "--screenshots" in arguments:
        at = arguments.index("--screenshots")
        SCREENSHOTS = os.path.abspath(arguments[at + 1])
        del arguments[at:at + 2]
    PROGRAM = os.path.abspath(arguments.pop(0))
    if find_browser() is None:
        print("skipped: the page is not tried, there is no Chromium here (Debian: chromium-headless-shell)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "-v", *arguments])


if __name__ == "__main__":
    main()
