// The page of `slipstream serve`: chat, and the engine's live view. All text goes into the document by DOM calls, never
// as HTML. Nothing is loaded from elsewhere. Conversations are kept in localStorage, the API key in sessionStorage.
"use strict";

const $ = (id) => document.getElementById(id);

// Makes an element. `props` are properties; `kids` are nodes or texts.
function el(tag, props, ...kids) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("aria-") || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...kids);
  return node;
}

function button(label, act, props) {
  return el("button", { type: "button", textContent: label, onclick: act, ...props });
}

const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const sizeText = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; ++i; }
  return `${bytes < 10 && i > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
};
const secondsText = (s) => s < 1 ? "less than 1 s" : s < 90 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`;

function notify(text) {
  $("notice-text").textContent = text;
  $("notice").hidden = text === "";
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {  // browsers offer the clipboard only over HTTPS and on localhost
    const area = el("textarea", { value: text, className: "unseen" });
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
  }
}

function copyButton(text) {
  const made = button("Copy", async () => {
    made.textContent = await copyText(text()) ? "Copied" : "Not copied";
    setTimeout(() => { made.textContent = "Copy"; }, 1500);
  });
  return made;
}

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// ---- Markdown ----------------------------------------------------------------------------------------------------

const Markdown = (() => {
  const kDeepest = 12;           // nested lists and quotes; further ones are text
  const kLongestInline = 20000;  // characters of a paragraph that is parsed; a longer one is plain text
  const fenceOf = (line) => line.match(/^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/);
  const itemOf = (line) => line.match(/^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/);
  const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
  const isTableLine = (line) => /^ {0,3}\|?( *:?-+:? *\|)+ *(:?-+:? *)?$/.test(line);
  const indentOf = (line) => line.match(/^\s*/)[0].length;

  // Splits a text into its blocks: [{kind, lines, ...}].
  function blocksOf(text) {
    const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
    const blocks = [];
    let i = 0;
    while (i < lines.length) {
      const begin = i;
      const line = lines[i];
      const add = (kind) => blocks.push({ kind, lines: lines.slice(begin, i) });
      if (line.trim() === "") { ++i; continue; }
      const fence = fenceOf(line);
      if (fence) {
        const closing = (other) => {
          const mark = other.trim();
          return mark.length >= fence[1].length && mark === fence[1][0].repeat(mark.length) && indentOf(other) < 4;
        };
        for (++i; i < lines.length && !closing(lines[i]);) ++i;
        ++i;
        add("code");
      } else if (/^ {0,3}#{1,6}(\s|$)/.test(line)) {
        ++i;
        add("heading");
      } else if (isRule(line)) {
        ++i;
        add("rule");
      } else if (/^ {0,3}>/.test(line)) {
        while (i < lines.length && lines[i].trim() !== "" && (/^ {0,3}>/.test(lines[i]) || !startsBlock(lines[i]))) ++i;
        add("quote");
      } else if (itemOf(line)) {
        // An item goes on in lines that are indented further than its mark.
        const base = indentOf(line);
        for (++i; i < lines.length; ++i) {
          if (lines[i].trim() === "") {
            let next = i;
            while (next < lines.length && lines[next].trim() === "") ++next;
            if (next === lines.length || !(indentOf(lines[next]) > base || itemOf(lines[next]))) break;
            i = next - 1;
          } else if (indentOf(lines[i]) <= base && !itemOf(lines[i]) && startsBlock(lines[i])) {
            break;
          }
        }
        add("list");
      } else if (line.includes("|") && i + 1 < lines.length && isTableLine(lines[i + 1])) {
        while (i < lines.length && lines[i].trim() !== "" && lines[i].includes("|")) ++i;
        add("table");
      } else {
        for (++i; i < lines.length && lines[i].trim() !== "" && !startsBlock(lines[i]);) ++i;
        add("paragraph");
      }
    }
    return blocks;
  }

  function startsBlock(line) {
    return /^ {0,3}(#{1,6}\s|>)/.test(line) || fenceOf(line) || isRule(line) || /^ {0,3}([-*+]|1[.)])\s/.test(line);
  }

  function link(target, kids) {
    let url = null;
    try { url = new URL(target); } catch { /* not a URL */ }
    if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) return null;
    return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, ...kids);
  }

  // Returns the first index in `text`, from `from` on, where emphasis that was opened by `mark` ends; -1 if none.
  function endOf(text, mark, from) {
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
      if (/\s/.test(text[at - 1]) || text[at - 1] === "\\") continue;
      if (mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark)) { ++at; continue; }
      if (mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[at + mark.length] || "")) continue;
      return at;
    }
    return -1;
  }

  function inline(text, depth = 0) {
    const out = [];
    let plain = "";
    const flush = () => { if (plain) out.push(plain); plain = ""; };
    const put = (node) => { flush(); out.push(node); };
    if (text.length > kLongestInline || depth > kDeepest) return [text];
    let n_missed = 0;  // marks without an end: each costs a search of the rest
    for (let i = 0; i < text.length;) {
      const rest = text.slice(i, i + 2048);
      const c = text[i];
      let found;
      if (c === "\\" && i + 1 < text.length && /[!-/:-@[-`{-~]/.test(text[i + 1])) {
        plain += text[i + 1];
        i += 2;
      } else if (c === "`") {
        const mark = rest.match(/^`+/)[0];
        const end = n_missed < 200 ? text.indexOf(mark, i + mark.length) : -1;
        if (end < 0) { plain += mark; i += mark.length; ++n_missed; continue; }
        put(el("code", { textContent: text.slice(i + mark.length, end).replace(/\n/g, " ").replace(/^ (.*) $/, "$1") }));
        i = end + mark.length;
      } else if ((c === "*" || c === "_" || (c === "~" && text[i + 1] === "~")) && n_missed < 200) {
        const run = text[i + 1] === c ? c + c : c;
        const opens = !/^\s?$/.test(text[i + run.length] || "") && !(c === "_" && /[\p{L}\p{N}]/u.test(text[i - 1] || ""));
        const end = opens ? endOf(text, run, i + run.length + 1) : -1;
        if (end < 0) { plain += run; i += run.length; ++n_missed; continue; }
        const tag = c === "~" ? "del" : run.length === 2 ? "strong" : "em";
        put(el(tag, null, ...inline(text.slice(i + run.length, end), depth + 1)));
        i = end + run.length;
      } else if ((found = rest.match(/^!?\[((?:[^[\]\\]|\\.|\[[^[\]]*\])*)\]\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/))) {
        // An image is not loaded: its address would tell what is read here. It becomes a link.
        const kids = c === "!" ? [`image: ${found[1] || found[2]}`] : inline(found[1], depth + 1);
        const made = link(found[2], kids);
        if (made) put(made); else plain += found[0];
        i += found[0].length;
      } else if ((found = rest.match(/^<(https?:\/\/[^\s<>]+)>/)) || (/(^|[\s(])$/.test(text[i - 1] || "") &&
                 (found = rest.match(/^(https?:\/\/[^\s<>]*[^\s<>.,;:!?'")\]}*_])/)))) {
        const made = link(found[1], [found[1]]);
        if (made) put(made); else plain += found[0];
        i += found[0].length;
      } else if (c === "\n") {
        plain = plain.replace(/ +$/, "");
        put(el("br"));
        ++i;
      } else {
        plain += c;
        ++i;
      }
    }
    flush();
    return out;
  }

  function cellsOf(line) {
    const cells = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1").split(/(?<!\\)\|/);
    return cells.map((cell) => cell.trim().replace(/\\\|/g, "|"));
  }

  function table(lines) {
    const sides = cellsOf(lines[1]).map((cell) => cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "");
    const row = (line, tag) => {
      const cells = cellsOf(line);
      return el("tr", null, ...sides.map((side, i) => el(tag, { className: side }, ...inline(cells[i] || ""))));
    };
    return el("div", { className: "scroll" }, el("table", null, el("thead", null, row(lines[0], "th")),
      el("tbody", null, ...lines.slice(2).map((line) => row(line, "td")))));
  }

  function list(lines, depth) {
    const base = indentOf(lines[0]);
    const ordered = /^\d/.test(lines[0].trim());
    const items = [];
    for (const line of lines) {
      const item = itemOf(line);
      if (item && item[1].length < base + 2) items.push({ pad: item[1].length + item[2].length + 1, lines: [item[4]] });
      else {
        const last = items[items.length - 1];
        last.lines.push(line.slice(Math.min(indentOf(line), last.pad)));
      }
    }
    const node = el(ordered ? "ol" : "ul");
    if (ordered) node.start = parseInt(lines[0].trim(), 10);
    for (const item of items) {
      const task = item.lines[0].match(/^\[([ xX])\] (.*)/);
      if (task) item.lines[0] = (task[1] === " " ? "☐ " : "☑ ") + task[2];
      const blocks = blocksOf(item.lines.join("\n"));
      const kids = blocks.map((block) => block.kind === "paragraph"
        ? el("div", null, ...inline(block.lines.join("\n").trim())) : render(block, depth + 1));
      node.append(el("li", null, ...kids));
    }
    return node;
  }

  function code(lines) {
    const [, mark, info] = fenceOf(lines[0]);
    const closed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(mark);
    const text = lines.slice(1, closed ? -1 : undefined).join("\n");
    const word = info.trim().split(/\s/)[0];
    return el("div", { className: "code" },
      el("div", { className: "bar" }, el("span", { className: "small", textContent: word || "code" }), copyButton(() => text)),
      el("pre", { tabIndex: 0 }, el("code", { textContent: text })));
  }

  function render(block, depth = 0) {
    const lines = block.lines;
    if (depth > kDeepest) return el("p", { textContent: lines.join("\n") });
    switch (block.kind) {
      case "code": return code(lines);
      case "heading": {
        const [, marks, text] = lines[0].match(/^\s*(#{1,6})(.*)$/);
        return el(`h${marks.length}`, null, ...inline(text.trim().replace(/(^|\s)#+$/, "").trim()));
      }
      case "rule": return el("hr");
      case "quote": return el("blockquote", null,
        ...blocksOf(lines.map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n")).map((each) => render(each, depth + 1)));
      case "list": return list(lines, depth);
      case "table": return table(lines);
      default: return el("p", null, ...inline(lines.map((line) => line.replace(/^ +/, "")).join("\n").trim()));
    }
  }

  // Shows a growing text in `place`: blocks that have not changed keep their nodes.
  function show(place, text) {
    const known = place.blocks || [];
    const blocks = blocksOf(text).map((block) => ({ source: block.kind + block.lines.join("\n"), block }));
    let same = 0;
    while (same < known.length && same < blocks.length && known[same].source === blocks[same].source) ++same;
    while (place.childNodes.length > same) place.lastChild.remove();
    for (const each of blocks.slice(same)) place.append(render(each.block));
    place.blocks = blocks;
  }

  return { show };
})();

// ---- The server --------------------------------------------------------------------------------------------------

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const Server = (() => {
  let asking = null;
  const fields = () => {
    const key = sessionStorage.getItem("slipstream.key");
    return key ? { Authorization: `Bearer ${key}` } : {};
  };

  // Asks the user for the API key. Requests that need it at the same time share one question.
  function askKey() {
    asking ||= new Promise((resolve) => {
      const dialog = $("key-dialog");
      $("key").value = "";
      dialog.showModal();
      dialog.addEventListener("close", () => {
        asking = null;
        const key = $("key").value.trim();
        if (dialog.returnValue === "ok" && key) sessionStorage.setItem("slipstream.key", key);
        resolve(dialog.returnValue === "ok" && key !== "");
      }, { once: true });
    });
    return asking;
  }

  async function failure(answer) {
    let message = `the server answered with status ${answer.status}`;
    try { message = (await answer.json()).error.message || message; } catch { /* no JSON */ }
    return new ApiError(answer.status, message);
  }

  async function get(path, options) {
    for (;;) {
      const answer = await fetch(path, { cache: "no-store", ...options, headers: { ...options?.headers, ...fields() } });
      if (answer.ok) return answer;
      if (answer.status !== 401 || !await askKey()) throw await failure(answer);
    }
  }

  // Calls `take` with each event of a stream, until it ends.
  async function events(path, options, take) {
    const answer = await get(path, options);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const event = text.slice(0, end);
        text = text.slice(end + 2);
        if (event.startsWith("data: ")) take(event.slice(6));
      }
    }
  }

  return { get, events };
})();

const Known = { model: "", context: 0, fingerprint: "", options: [] };  // from the server's answers

// ---- Conversations -----------------------------------------------------------------------------------------------

const Store = (() => {
  const kPrefix = "slipstream.talk.";
  const kMostCharacters = 4_000_000;  // of all conversations together; browsers refuse more than about 5 million
  let told = false;

  const keys = () => Object.keys(localStorage).filter((key) => key.startsWith(kPrefix));
  function all() {
    const talks = [];
    for (const key of keys()) {
      try { talks.push(JSON.parse(localStorage.getItem(key))); } catch { localStorage.removeItem(key); }
    }
    return talks.sort((a, b) => b.at - a.at);
  }

  // Returns whether the conversation is kept. If the browser's store is full, the user is told once.
  function put(talk) {
    const key = kPrefix + talk.id;
    const text = JSON.stringify(talk);
    const others = keys().filter((each) => each !== key).reduce((sum, each) => sum + localStorage.getItem(each).length, 0);
    try {
      if (others + text.length > kMostCharacters) throw new Error("full");
      localStorage.setItem(key, text);
      told = false;
      return true;
    } catch {
      if (!told) notify("The browser's store for conversations is full: this one is not kept when the tab closes. Export what " +
        "you need and delete old conversations.");
      told = true;
      return false;
    }
  }

  return { all, put, isFull: () => told, drop: (talk) => localStorage.removeItem(kPrefix + talk.id) };
})();

const newTalk = () => ({ id: crypto.getRandomValues(new Uint32Array(2)).join("-"), at: Date.now(), title: "", system: "", settings: {}, messages: [] });

let talks = Store.all();
let talk = talks[0] || newTalk();
let running = null;  // {abort, talk, message}: the answer that is being generated; null: none

function keep(which = talk) {
  which.at = Date.now();
  const first = which.messages.find((message) => message.role === "user");
  which.title = first ? first.content.trim().slice(0, 60) : "";
  if (which.messages.length > 0 || which.system) Store.put(which);
  if (!talks.includes(which)) talks.unshift(which);
  talks.sort((a, b) => b.at - a.at);
  showTalks();
}

function showTalks() {
  const items = talks.filter((each) => each.messages.length > 0 || each === talk).map((each) => {
    const drop = button("Delete", () => {
      if (drop.textContent === "Delete") {
        drop.textContent = "Really?";
        setTimeout(() => { drop.textContent = "Delete"; }, 3000);
        return;
      }
      if (running?.talk === each) running.abort.abort();
      Store.drop(each);
      talks = talks.filter((other) => other !== each);
      if (each === talk) open(talks[0] || newTalk());
      showTalks();
    }, { className: "drop", "aria-label": `Delete: ${each.title || "new conversation"}` });
    const current = each === talk;
    return el("li", { className: current ? "current" : "" }, button(each.title || "New conversation", () => {
      open(each);
      if (!isWide()) showPanel("side", false);
    }, { className: "open", ...(current ? { "aria-current": "true" } : {}) }), drop);
  });
  $("talks").replaceChildren(...items);
}

function open(which) {
  talk = which;
  const form = $("settings-form");
  form.system.value = talk.system;
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "think"])
    form[name].value = talk.settings[name] ?? "";
  for (const input of form.querySelectorAll("input")) checkSetting(input);
  showTalks();
  showLog();
  if (isWide()) $("say").focus();  // on a phone that would open its keyboard
}

const kRanges = { temperature: [0, 100], top_p: [0, 1], top_k: [0, 1e6], min_p: [0, 1], max_tokens: [-1, 1e9], seed: [0, Number.MAX_SAFE_INTEGER] };
function settingOf(settings, name) {
  const text = String(settings[name] ?? "").trim();
  const value = Number(text);
  const [least, most] = kRanges[name];
  const whole = !["top_k", "max_tokens", "seed"].includes(name) || Number.isInteger(value);
  return { given: text !== "", valid: text === "" || (whole && value >= least && value <= most), value };
}
function checkSetting(input) {
  const { valid } = settingOf({ [input.name]: input.value }, input.name);
  input.setAttribute("aria-invalid", String(!valid));
  input.title = valid ? "" : `a number from ${kRanges[input.name].join(" to ")} is expected`;
}

// ---- Showing messages --------------------------------------------------------------------------------------------

// Articles whose messages have not changed stay: a screen reader would read them again.
function showLog() {
  const log = $("log");
  const kept = log.talk === talk ? [...log.children] : [];
  log.talk = talk;
  const wanted = talk.messages.map((message, i) =>
    kept[i]?.state === stateOf(message, i) ? kept[i] : articleOf(message, i));
  if (wanted.length === 0) {
    wanted.push(el("div", { className: "welcome" }, el("h2", { textContent: "A conversation with your own machine" }),
      el("p", { textContent: "Nothing leaves it. Write a message below; beside it you see how the model works." })));
  }
  wanted.forEach((article, i) => {
    const old = log.children[i];
    if (old === undefined) log.append(article);
    else if (old !== article) old.replaceWith(article);
  });
  while (log.children.length > wanted.length) log.lastChild.remove();
  log.scrollTop = log.scrollHeight;
  showRunning();
}

// Returns a text that changes whenever the article of a message must change.
const stateOf = (message, i) => JSON.stringify([message, i, i === talk.messages.length - 1, running?.message === message, Known.model]);

function articleOf(message, i) {
  const mine = message.role === "user";
  const article = el("article", { className: message.role, state: stateOf(message, i), "aria-label": mine ? "You" : "The model" });
  article.append(el("div", { className: "who", textContent: mine ? "You" : Known.model || "The model" }));
  fill(article, message, i);
  return article;
}

// Shows text, thoughts and buttons of a message in its article.
function fill(article, message, i) {
  const active = running?.message === message;
  if (message.role === "user") {
    article.append(el("div", { className: "text", textContent: message.content }));
  } else {
    const thought = el("details", { className: "thought", hidden: !message.thought },
      el("summary", { textContent: "Thoughts" }), el("div", { className: "md" }));
    const text = el("div", { className: "md text" });
    article.append(thought, text);
    article.refresh = () => {
      thought.hidden = !message.thought;
      if (message.thought) Markdown.show(thought.lastChild, message.thought);
      Markdown.show(text, message.content);
    };
    article.refresh();
    if (active) article.append(el("p", { className: "waits", textContent: running.waits }));
  }
  if (!active) article.append(footOf(article, message, i));
}

function footOf(article, message, i) {
  const foot = el("div", { className: "foot" });
  const info = message.info || {};
  const last = i === talk.messages.length - 1;
  const parts = [];
  if (info.tokens !== undefined) parts.push(counted(info.tokens, "token"));
  if (info.rate > 0) parts.push(`${info.rate.toFixed(1)} tokens/s`);
  if (info.passes > 0) parts.push(`${(info.tokens / info.passes).toFixed(2)} a pass`);
  if (info.seed !== undefined) parts.push(`seed ${info.seed}`);
  if (parts.length) foot.append(el("span", { className: "small", textContent: parts.join(" · ") }));
  if (info.end) foot.append(el("span", { className: "small ended", textContent: info.end }));
  foot.append(copyButton(() => message.content), button("Edit", () => edit(article, message, i)));
  if (message.role === "user" && last) foot.append(button("Answer", () => answer()));
  if (message.role === "assistant") {
    foot.append(button("Regenerate", () => regenerate(i)));
    if (last && info.end && message.content) foot.append(button("Continue", () => answer({ goesOn: true })));
    if (info.request) foot.append(button("Command", () => showCommand(message, i), { title: "The generate command that says the same" }));
  }
  return foot;
}

function edit(article, message, i) {
  if (running) return;
  const area = el("textarea", { value: message.content, "aria-label": "Edited message" });
  const mine = message.role === "user";
  const close = () => showLog();
  const done = () => {
    message.content = area.value;
    if (mine) {
      talk.messages.length = i + 1;
      keep();
      showLog();
      answer();
    } else {
      delete message.info;
      for (const later of talk.messages.slice(i)) delete later.info?.request;  // their commands no longer give the same text
      keep();
      showLog();
    }
  };
  article.state = "";  // showLog() makes it anew
  area.onkeydown = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey && mine && !event.isComposing) { event.preventDefault(); done(); }
  };
  article.replaceChildren(article.firstChild, el("div", { className: "editor" }, area,
    el("div", { className: "row" }, button(mine ? "Send" : "Keep", done), button("Cancel", close))));
  area.focus();
}

function regenerate(i) {
  if (running) return;
  const before = talk.messages[i].info?.seed;
  talk.messages.length = i;
  showLog();
  answer({ seed: before === undefined ? undefined : before + 1 });
}

// ---- Answers -----------------------------------------------------------------------------------------------------

const drawnSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

// The body of the request for an answer to `messages`, without what only the page needs.
function requestOf(messages, seed) {
  const body = { messages: [] };
  if (talk.system) body.messages.push({ role: "system", content: talk.system });
  for (const { role, content, thought } of messages)
    body.messages.push(thought ? { role, content, reasoning_content: thought } : { role, content });
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens"]) {
    const setting = settingOf(talk.settings, name);
    if (setting.given && setting.valid) body[name] = setting.value;
  }
  body.seed = seed;
  if (talk.settings.think) body.chat_template_kwargs = { enable_thinking: talk.settings.think === "yes" };
  return body;
}

async function send(text) {
  const last = talk.messages[talk.messages.length - 1];
  if (last?.role === "user") last.content += `\n\n${text}`;  // it has no answer: messages alternate
  else talk.messages.push({ role: "user", content: text });
  keep();
  showLog();
  await answer();
}

// Requests an answer to the conversation as it is, or continues the last one.
async function answer({ goesOn = false, seed } = {}) {
  if (running) return;
  if (!Store.isFull()) notify("");
  const given = settingOf(talk.settings, "seed");
  seed ??= given.given && given.valid ? given.value : drawnSeed();
  const body = requestOf(talk.messages, seed);
  if (!goesOn) talk.messages.push({ role: "assistant", content: "" });
  const message = talk.messages[talk.messages.length - 1];
  const began = { content: message.content.length, thought: (message.thought || "").length };
  message.info = { seed, request: { ...body, messages: undefined }, began, system: talk.system };
  const mine = running = { abort: new AbortController(), talk, message, waits: "Waiting for the model" };
  showLog();
  setState("Working");
  let finish = null;
  try {
    await Server.events("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, return_progress: true }),
      signal: mine.abort.signal,
    }, (text) => {
      if (text === "[DONE]") return;
      const event = JSON.parse(text);
      if (event.error) throw new ApiError(0, event.error.message);
      finish = take(event, message) || finish;
      refresh();
    });
    if (finish === null) throw new ApiError(0, "the connection ended before the answer did");
    if (finish === "length") message.info.end = "cut by its most tokens or by the context";
  } catch (failure) {
    const stopped = mine.abort.signal.aborted;
    message.info.end = stopped ? "stopped" : "cut off";
    if (!stopped) notify(failure instanceof ApiError ? failure.message : `The server cannot be reached: ${failure.message}`);
    if (!message.content && !message.thought) mine.talk.messages.pop();
  }
  running = null;
  setState("Ready");
  if (talks.includes(mine.talk)) keep(mine.talk);  // it was not deleted
  if (mine.talk === talk) {
    const stays = isAtEnd();
    const top = $("log").scrollTop;
    showLog();
    if (!stays) $("log").scrollTop = top;
  } else {
    showRunning();
  }
}

// Adds an event of the stream to the message. Returns the finish_reason, once it is there.
function take(event, message) {
  const info = message.info;
  if (event.system_fingerprint) info.fingerprint = event.system_fingerprint;
  if (event.prompt_progress) {
    const { total, cache, processed, time_ms } = event.prompt_progress;
    const left = processed > cache ? time_ms / 1000 / (processed - cache) * (total - processed) : null;
    running.waits = `Reading the prompt: ${processed.toLocaleString("en")} of ${counted(total, "token")}` +
      (left !== null && processed < total ? `, about ${secondsText(left)} left` : "");
  }
  if (event.timings) {
    info.tokens = event.timings.predicted_n;
    info.rate = event.timings.predicted_per_second;
    info.passes = event.slipstream?.passes;
    info.used = event.timings.cache_n + event.timings.prompt_n + event.timings.predicted_n;
  }
  const choice = event.choices?.[0];
  if (!choice) return null;
  const { content, reasoning_content: thought } = choice.delta;
  if (thought) { message.thought = (message.thought || "") + thought; running.waits = "Thinking"; }
  if (content) { message.content += content; running.waits = ""; }
  return choice.finish_reason;
}

const isAtEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;

let drawing = false;
function refresh() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!running || running.talk !== talk) return;
    const article = $("log").lastElementChild;
    const stays = isAtEnd();
    article.refresh();
    const waits = article.querySelector(".waits");
    waits.textContent = running.waits;
    waits.hidden = running.waits === "";
    if (stays) $("log").scrollTop = $("log").scrollHeight;
  });
}

function showRunning() {
  const here = running !== null;
  $("send").hidden = here;
  $("stop").hidden = !here;
  $("log").setAttribute("aria-busy", String(here));
  const used = talk.messages.findLast?.((message) => message.info?.used)?.info.used;
  $("hint").textContent = "Enter sends, Shift+Enter makes a line, Esc stops" +
    (used && Known.context ? ` · context: ${used.toLocaleString("en")} of ${counted(Known.context, "token")}` : "");
}

// ---- The command that gives the same answer ------------------------------------------------------------------------

const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;

// The messages of the request that gave the answer at `i`, in the form of `generate --messages`.
function messagesOf(message, i) {
  const { began, request, system } = message.info;
  const messages = talk.messages.slice(0, i).map(({ role, content, thought }) =>
    thought ? { role, content, reasoning_content: thought } : { role, content });
  if (system) messages.unshift({ role: "system", content: system });
  if (began.content > 0 || began.thought > 0) {
    const part = { role: "assistant", content: message.content.slice(0, began.content) };
    if (began.thought > 0) part.reasoning_content = message.thought.slice(0, began.thought);
    messages.push(part);
  }
  const file = { messages };
  if (request.chat_template_kwargs) file.chat_template_kwargs = request.chat_template_kwargs;
  return file;
}

function commandOf(message) {
  const { request, seed } = message.info;
  const words = ["slipstream", "generate"];
  const own = { seed: "--seed", temperature: "--temperature", top_p: "--top-p", top_k: "--top-k", min_p: "--min-p", max_tokens: "--max-tokens" };
  const set = Object.keys(own).filter((name) => name === "seed" || request[name] !== undefined).map((name) => own[name]);
  for (let i = 0; i < Known.options.length; ++i) {
    if (set.includes(Known.options[i])) { ++i; continue; }  // the request's value replaces the server's
    words.push(Known.options[i]);
  }
  words.push("--messages", "messages.json");
  for (const [name, option] of Object.entries(own)) {
    const value = name === "seed" ? seed : request[name];
    if (value !== undefined) words.push(option, String(value));
  }
  return words.map(quoted).join(" ");
}

function showCommand(message, i) {
  const changed = message.info.fingerprint && Known.fingerprint && message.info.fingerprint !== Known.fingerprint;
  $("command").textContent = commandOf(message);
  $("fingerprint").textContent = message.info.fingerprint || "(not told)";
  $("command-note").textContent = changed ? "The server runs with another fingerprint now: the text may differ."
    : message.info.end === "stopped" ? "The answer was stopped: the command goes on after its end." : "";
  $("command-copy").onclick = async () => { $("command-copy").textContent = await copyText(commandOf(message)) ? "Copied" : "Not copied"; };
  $("command-copy").textContent = "Copy the command";
  $("command-save").onclick = () => save("messages.json", JSON.stringify(messagesOf(message, i), null, 2));
  $("command-dialog").showModal();
}

// ---- Files: those of `slipstream chat --session` --------------------------------------------------------------------

const kFileSettings = { temperature: "temperature", top_p: "top-p", top_k: "top-k", min_p: "min-p", max_tokens: "max-tokens", seed: "seed" };

function fileOf(which) {
  const settings = {};
  for (const [name, key] of Object.entries(kFileSettings)) {
    const setting = settingOf(which.settings, name);
    if (setting.given && setting.valid) settings[key] = setting.value;
  }
  if (which.settings.think) settings.think = which.settings.think === "yes";
  const messages = which.messages.map(({ role, content, thought }) => thought ? { role, content, thought } : { role, content });
  if (messages.length % 2 === 1) messages.push({ role: "assistant", content: "" });  // the last message has no answer yet
  return { format: "slipstream chat", version: 1, model: Known.model, system: which.system || null, settings, messages };
}

function talkOf(text) {
  const file = JSON.parse(text);
  if (file.format !== "slipstream chat" || file.version !== 1) throw new Error("it is not a file of 'slipstream chat --session'");
  const made = newTalk();
  made.system = typeof file.system === "string" ? file.system : "";
  for (const [name, key] of Object.entries(kFileSettings))
    if (typeof file.settings?.[key] === "number") made.settings[name] = String(file.settings[key]);
  if (typeof file.settings?.think === "boolean") made.settings.think = file.settings.think ? "yes" : "no";
  if (!Array.isArray(file.messages)) throw new Error("it has no messages");
  file.messages.forEach(({ role, content, thought }, i) => {
    if (role !== (i % 2 === 0 ? "user" : "assistant") || typeof content !== "string")
      throw new Error(`its message ${i + 1} is not as expected`);
    made.messages.push(typeof thought === "string" ? { role, content, thought } : { role, content });
  });
  const last = made.messages[made.messages.length - 1];
  if (last?.role === "assistant" && !last.content && !last.thought) made.messages.pop();
  return made;
}

async function importFile(file) {
  try {
    const made = talkOf(await file.text());
    open(made);
    keep(made);
  } catch (failure) {
    notify(`${file.name} cannot be imported: ${failure.message}`);
  }
}

// ---- The live view -----------------------------------------------------------------------------------------------

const Live = (() => {
  const kKept = 100;  // trees kept, through which the user can step while the view is held
  const trees = [];
  const rates = [];
  let held = false;
  let place = -1;  // index in `trees` of the tree that is shown while the view is held
  let abort = null;
  let drawn = false;
  let latest = null;
  let devices = [];  // names of the devices of the plan

  const sourceClass = (i) => `c${i % 8}`;

  function token(text, props) {
    const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥") || "∅";
    return el("span", { textContent: shown.startsWith(" ") ? `·${shown.slice(1)}` : shown, ...props });
  }

  // Rows of the tree: a node's first child, or the accepted one, goes on in its row, the others begin rows of their own.
  function rowsOf(tree) {
    const kids = tree.nodes.map(() => []);
    tree.nodes.forEach((node, i) => { if (node.parent >= 0) kids[node.parent].push(i); });
    const rows = [];
    const walk = (start, depth) => {
      const row = { depth, nodes: [] };
      rows.push(row);
      const later = [];
      for (let at = start, deep = depth; at !== undefined; ++deep) {
        row.nodes.push(at);
        const order = kids[at].slice().sort((a, b) => tree.nodes[b].accepted - tree.nodes[a].accepted);
        later.push(...order.slice(1).map((each) => [each, deep + 1]));
        if (order.length === 0 || (tree.nodes[at].accepted && !tree.nodes[order[0]].accepted)) {
          if (order.length > 0) later.push([order[0], deep + 1]);
          break;
        }
        at = order[0];
      }
      for (const [node, deep] of later.reverse()) walk(node, deep);
    };
    if (tree.nodes.length > 0) walk(0, 0);
    return rows;
  }

  function drawTree() {
    const tree = held ? trees[place] : trees[trees.length - 1];
    $("step-back").hidden = $("step-on").hidden = !held;
    $("step-place").textContent = held && tree ? `${place + 1} of ${trees.length}` : "";
    if (!tree) return;
    const used = new Set();
    tree.nodes.forEach((node) => tree.sources.forEach((_, i) => { if (node.sources >>> i & 1) used.add(i); }));
    $("legend").replaceChildren(...tree.sources.map((name, i) => el("li", { className: sourceClass(i), textContent: name }))
      .filter((_, i) => used.has(i)));
    const named = (node) => tree.sources.filter((_, i) => node.sources >>> i & 1);
    const rows = rowsOf(tree).map((row) => {
      const line = el("div", { className: "branch" });
      line.style.marginLeft = `${Math.min(row.depth, 24) * 14}px`;
      for (const i of row.nodes) {
        const node = tree.nodes[i];
        if (node.parent < 0) { line.append(token(node.text, { className: "tok root", title: "the last token before the pass" })); continue; }
        const colors = tree.sources.map((_, each) => each).filter((each) => node.sources >>> each & 1);
        const made = token(node.text, {
          className: `tok ${node.accepted ? "accepted" : ""} ${colors.length ? sourceClass(colors[0]) : ""}`,
          title: `${named(node).join(", ") || "source not known"}${node.accepted ? "; accepted" : ""}`,
        });
        if (colors.length > 1) {  // a part of the line for each source
          const parts = colors.map((each, k) => `var(--s${each % 8}) ${100 * k / colors.length}% ${100 * (k + 1) / colors.length}%`);
          made.style.borderImage = `linear-gradient(90deg, ${parts.join(", ")}) 1`;
        }
        line.append(made);
      }
      if (row.depth === 0) line.append(token(tree.sampled, { className: "tok sampled", title: "chosen by the model itself" }));
      return line;
    });
    $("tree").replaceChildren(...rows);
    const accepted = tree.nodes.filter((node) => node.accepted && node.parent >= 0);
    $("tree").setAttribute("aria-label", `${counted(tree.size - 1, "draft token")}, ${accepted.length} accepted` +
      (accepted.length ? `: ${accepted.map((node) => `${node.text.trim()} by ${named(node).join(" and ") || "an unknown source"}`).join(", ")}` : "") +
      `; then the model chose ${tree.sampled.trim()}`);
  }

  function draw() {
    const { text, waiting, link_busy: busy } = latest;
    const bar = $("prompt-bar");
    bar.hidden = text?.phase !== "prompt";
    $("queue").textContent = waiting > 0 ? `${counted(waiting, "request")} wait${waiting === 1 ? "s" : ""}` : "";
    if (text) {
      const kept = text.reused_tokens > 0 ? `, ${text.reused_tokens.toLocaleString("en")} of them kept` : "";
      if (text.phase === "prompt") {
        bar.value = text.prompt_tokens > 0 ? text.prompt_done / text.prompt_tokens : 0;
        $("phase").textContent = `Request ${text.id} reads its prompt: ${text.prompt_done.toLocaleString("en")} of ` +
          counted(text.prompt_tokens, "token") + kept + (text.seconds_left !== null ? `; about ${secondsText(text.seconds_left)} left` : "");
      } else {
        $("phase").textContent = `Request ${text.id} ${text.phase === "answer" ? "writes" : "has ended"}: ` +
          `${counted(text.generated, "token")} after a prompt of ${text.prompt_tokens.toLocaleString("en")}${kept}`;
      }
      if (text.passes > 0) {
        $("per-pass").textContent = (text.generated / text.passes).toFixed(2);
        const seconds = text.decode_seconds;
        $("rate").textContent = text.phase === "answer" && text.generated > 1 && seconds > 0
          ? `${((text.generated - 1) / seconds).toFixed(1)} tokens/s, ${counted(text.passes, "pass").replace(/passs$/, "passes")}`
          : counted(text.passes, "pass").replace(/passs$/, "passes");
      }
      setState(text.phase === "ended" ? "Ready" : text.phase === "prompt" ? "Reading" : "Writing");
    }
    const most = Math.max(2, ...rates);
    $("spark").replaceChildren(...rates.map((rate) => {
      const one = el("i");
      one.style.height = `${100 * rate / most}%`;
      return one;
    }));
    if (busy.length === 0) {
      $("links").replaceChildren(el("p", { className: "small", textContent: "Nothing streams: all that passes read is where it is computed." }));
    } else {
      $("links").replaceChildren(...busy.map((part, i) => el("div", null,
        el("span", { className: "small", textContent: `To ${devices[i] || `device ${i}`}: copies ${Math.round(100 * part)} % of the time` }),
        el("meter", { max: 1, value: part, "aria-label": `Link to ${devices[i] || `device ${i}`}` }))));
    }
    if (!held) drawTree();
  }

  function drawPlan(plan) {
    if (!plan) return;
    const part = (className, name, bytes) => [el("i", { className }), el("dt", { textContent: name }), el("dd", { textContent: sizeText(bytes) })];
    const kids = [];
    devices = (plan.device_memory || []).map((each) => each.device);
    for (const device of plan.device_memory || []) {
      const rows = Object.entries(device).filter(([name, bytes]) => name !== "device" && name !== "free" && bytes > 0);
      const sum = rows.reduce((all, [, bytes]) => all + bytes, device.free || 0);
      const stack = el("div", { className: "stack", role: "img", "aria-label": `Memory of ${device.device}` }, ...rows.map(([, bytes], i) => {
        const one = el("i", { className: sourceClass(i) });
        one.style.width = `${100 * bytes / sum}%`;
        return one;
      }));
      const list = el("dl", null, ...rows.flatMap(([name, bytes], i) => part(sourceClass(i), name.replace(/_/g, " "), bytes)));
      if (device.free) list.append(...part("", "free", device.free));
      kids.push(el("p", { className: "device", textContent: device.device }), stack, list);
    }
    const all = el("dl");
    if (!plan.device_memory) {
      all.append(...part("c0", "weights", plan.weights_bytes), ...part("c1", "KV cache", plan.kv_bytes));
      kids.push(el("p", { className: "small", textContent: "No memory limit was given: all is in the host's memory." }));
    } else {
      all.append(...part("", "weights that stream", plan.streamed_weights_bytes), ...part("", "KV that streams", plan.streamed_kv_bytes));
      kids.push(el("p", { className: "device", textContent: "Each pass reads" }));
    }
    all.append(el("i"), el("dt", { textContent: "context" }), el("dd", { textContent: `${counted(plan.context_tokens, "token")}, KV ${plan.kv_type}` }));
    $("plan").replaceChildren(...kids, all);
  }

  function take(event) {
    if (event.type === "hello") {
      Object.assign(Known, { model: event.model, fingerprint: event.system_fingerprint, options: event.options });
      if (event.plan) Known.context = event.n_ctx;
      showModel();
      drawPlan(event.plan);
    }
    if (event.type !== "state") return;
    if (event.passes) {
      rates.push(event.passes.tokens / event.passes.n);
      if (rates.length > 60) rates.shift();
    }
    if (event.tree) {
      trees.push(event.tree);
      if (trees.length > kKept) { trees.shift(); if (held) place = Math.max(0, place - 1); }
    }
    latest = event;
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => { drawn = false; draw(); });
  }

  function hold(on) {
    held = on && trees.length > 0;
    place = trees.length - 1;
    $("hold").setAttribute("aria-pressed", String(held));
    drawTree();
  }
  function step(by) {
    place = Math.min(trees.length - 1, Math.max(0, place + by));
    drawTree();
  }

  // Reads the live stream while the view is open and the tab visible: a browser has few connections for all its tabs.
  async function listen() {
    const wanted = () => !document.hidden && !$("live").hidden;
    if (!wanted()) { abort?.abort(); return; }
    if (abort) return;
    abort = new AbortController();
    const { signal } = abort;
    try {
      if (!latest) $("phase").textContent = "Connecting";
      await Server.events("/slipstream/live", { signal }, (text) => {
        if (!latest) $("phase").textContent = "Nothing has run yet";
        take(JSON.parse(text));
      });
    } catch (failure) {
      if (!signal.aborted) $("phase").textContent = failure instanceof ApiError ? failure.message : "The server cannot be reached";
    }
    abort = null;
    if (wanted()) setTimeout(listen, signal.aborted ? 0 : 3000);
  }

  return { listen, hold, step, isHeld: () => held };
})();

// ---- The frame ---------------------------------------------------------------------------------------------------

const isWide = () => matchMedia("(min-width: 1000px)").matches;

function setState(text) { if ($("state").textContent !== text) $("state").textContent = text; }
function showModel() {
  $("model").textContent = Known.model;
  $("model").title = Known.fingerprint ? `system_fingerprint ${Known.fingerprint}` : "";
}

function showPanel(name, on) {
  $(name).hidden = !on;
  $(`toggle-${name}`).setAttribute("aria-expanded", String(on));
  if (on && !isWide()) {  // one panel at a time covers the page
    const other = name === "side" ? "live" : "side";
    if (!$(other).hidden) showPanel(other, false);
  }
  if (isWide()) localStorage.setItem(`slipstream.${name}`, on ? "open" : "closed");
  if (name === "live") Live.listen();
}

const kThemes = ["auto", "light", "dark"];
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("slipstream.theme", theme);
  $("theme").setAttribute("aria-label", `Theme: ${theme === "auto" ? "as the system has it" : theme}`);
  $("theme").title = $("theme").getAttribute("aria-label");
}

function grow() {
  const say = $("say");
  say.style.height = "auto";
  say.style.height = `${say.scrollHeight + 2}px`;
}

// Waits until the model is loaded, and sets the model's name and context in Known.
async function meet() {
  for (;;) {
    try {
      const props = await (await Server.get("/props")).json();
      Known.model = props.model_alias;
      Known.context = props.default_generation_settings.n_ctx;
      showModel();
      if (!props.loading) break;
      setState(props.loading.work ? `${props.loading.work}, ${Math.floor(100 * props.loading.progress)} %` : "Loading");
    } catch (failure) {
      if (failure instanceof ApiError) {
        notify(failure.message);
        return setState("No access");
      }
      setState("The server cannot be reached");
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  setState("Ready");
  if (running) showRunning(); else showLog();
}

$("composer").onsubmit = (event) => {
  event.preventDefault();
  const text = $("say").value.trim();
  if (!text || running) return;
  const wrong = $("settings-form").querySelector("[aria-invalid=true]");
  if (wrong) return notify(`The setting "${wrong.name.replace("_", " ")}": ${wrong.title}.`);
  $("say").value = "";
  grow();
  send(text);
};
$("say").oninput = grow;
$("say").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
};
$("stop").onclick = () => { running?.abort.abort(); $("say").focus(); };
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (running) return running.abort.abort();
  if (isWide()) return;
  for (const name of ["side", "live"]) {
    if ($(name).hidden) continue;
    showPanel(name, false);
    $(`toggle-${name}`).focus();
  }
});
$("notice-close").onclick = () => notify("");
for (const name of ["side", "live"]) $(`toggle-${name}`).onclick = () => showPanel(name, $(name).hidden);
$("theme").onclick = () => setTheme(kThemes[(kThemes.indexOf(localStorage.getItem("slipstream.theme") || "auto") + 1) % 3]);
$("new").onclick = () => { open(newTalk()); if (!isWide()) showPanel("side", false); };
$("export").onclick = () => {
  if (talk.messages.length === 0) return notify("There is nothing to export yet.");
  save(`chat-${new Date().toISOString().slice(0, 19).replace(/[T:]/g, "-")}.json`, JSON.stringify(fileOf(talk), null, 2));
};
$("import").onclick = () => $("file").click();
$("file").onchange = () => { if ($("file").files[0]) importFile($("file").files[0]); $("file").value = ""; };
$("settings-form").oninput = (event) => {
  const { name, value } = event.target;
  if (name === "system") talk.system = value;
  else talk.settings[name] = value;
  if (name in kRanges) checkSetting(event.target);
};
$("settings-form").onchange = () => { if (talk.messages.length > 0) keep(); };
$("settings-form").onsubmit = (event) => event.preventDefault();
$("hold").onclick = () => Live.hold(!Live.isHeld());
$("step-back").onclick = () => Live.step(-1);
$("step-on").onclick = () => Live.step(1);
document.addEventListener("visibilitychange", () => Live.listen());
addEventListener("pagehide", () => { if (running) Store.put(running.talk); });
addEventListener("storage", (event) => {  // another tab has changed a conversation
  if (!event.key?.startsWith("slipstream.talk.") || running) return;
  const changed = event.newValue ? JSON.parse(event.newValue) : null;
  talks = talks.filter((each) => `slipstream.talk.${each.id}` !== event.key);
  if (changed) talks.push(changed);
  talks.sort((a, b) => b.at - a.at);
  if (changed?.id === talk.id) open(changed); else showTalks();
});

setTheme(localStorage.getItem("slipstream.theme") || "auto");
open(talk);
for (const name of ["side", "live"]) showPanel(name, isWide() && localStorage.getItem(`slipstream.${name}`) !== "closed");
meet();
