"""A headless Chromium, driven by its DevTools protocol over two pipes (descriptors 3 and 4; JSON, each ended by NUL).

Needs nothing but Python's standard library and a Chromium.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    """Returns the path of a Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser. `events` has all events of the protocol so far."""

    PATIENCE = 60.0  # seconds

    def __init__(self, program, downloads):
        self._folder = tempfile.mkdtemp(prefix="slipstream-page-")
        ours, theirs = os.pipe(), os.pipe()
        # Above 9, so that the child's descriptors 3 and 4 are none of them.
        read_end = fcntl.fcntl(ours[0], fcntl.F_DUPFD_CLOEXEC, 10)
        write_end = fcntl.fcntl(theirs[1], fcntl.F_DUPFD_CLOEXEC, 10)

        def wire():
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)

        self._log = open(os.path.join(self._folder, "log"), "wb")
        self._process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--disable-lcd-text", "--force-color-profile=srgb", "--font-render-hinting=none",
             f"--user-data-dir={self._folder}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, preexec_fn=wire, pass_fds=(3, 4),
            start_new_session=True)
        for end in (ours[0], theirs[1], read_end, write_end):
            os.close(end)
        self._to, self._from = ours[1], theirs[0]
        self._rest = b""
        self._n_sent = 0
        self._session = None
        self._answers = {}
        self.events = []
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=downloads)

    def close(self):
        os.close(self._to)
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, method, parameters):
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._n_sent

    def call(self, method, **parameters):
        number = self._send(method, parameters)
        end = time.monotonic() + self.PATIENCE
        while number not in self._answers:
            self._read(end - time.monotonic(), f"no answer to {method}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self, seconds, otherwise):
        if seconds <= 0 or not select.select([self._from], [], [], seconds)[0]:
            raise TimeoutError(otherwise)
        part = os.read(self._from, 1 << 20)
        if not part:
            with open(self._log.name, "rb") as log:
                raise RuntimeError(f"the browser has ended: {log.read()[-2000:].decode(errors='replace')}")
        *whole, self._rest = (self._rest + part).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)
                if message["method"] == "Fetch.requestPaused":
                    self._send("Fetch.fulfillRequest", {"requestId": message["params"]["requestId"], **self._reply})

    def reply(self, pattern, content_type, body):
        """From now on requests whose address matches get this answer and do not reach the server; body None: as before."""
        if body is None:
            self.call("Fetch.disable")
            return
        self._reply = {"responseCode": 200, "responseHeaders": [{"name": "Content-Type", "value": content_type}],
                       "body": base64.b64encode(body.encode()).decode()}
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def pump(self, seconds=0.05):
        """Takes up events for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self._read(left, "")
            except TimeoutError:
                return

    def run(self, script):
        """Returns the value of a JavaScript expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait(self, script, patience=None):
        """Waits until a JavaScript expression is true, and returns its value."""
        end = time.monotonic() + (patience or self.PATIENCE)
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"this did not become true: {script}")
            self.pump()
        return value

    def visit(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}

    def press(self, key, shift=False):
        code, text = self.KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def choose_file(self, selector, path):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[path])

    def accessible(self):
        """Returns (role, name) of what assistive programs see."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
                if not node.get("ignored") and "role" in node]

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """Returns errors and warnings of the page's console, and exceptions."""
        found = []
        for event in self.events:
            method, what = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                found.append(str(what["args"]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")
        return found

    def requested(self):
        """Returns the addresses of all requests."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]
