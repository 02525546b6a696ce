#!/usr/bin/env python3
"""Checks that a long text is the same if its program is killed at random sizes of its session file and restarted.

    tools/dev/kill_long_text.py --kills 10 --session F ... -- PROGRAM generate -m MODEL -f PROMPT ...

After `--` follows the command that generates the text. It runs once without a kill, for comparison; the killed runs get
the options of --killed-extra in addition (for example another placement). The sizes are drawn from the range of sizes
that the session file goes through, a fifth of them while the prompt is processed."""
import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import time


def run(command, text):
    with open(text, "wb") as out:
        started = time.monotonic()
        code = subprocess.run(command, stdout=out, stderr=subprocess.PIPE).returncode
        return code, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--session", required=True, help="file that the killed runs keep; removed first")
    parser.add_argument("--killed-extra", default="", help="options that only the killed runs have")
    parser.add_argument("--token-bytes", type=int, required=True, help="of a session's KV a token")
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("command", nargs="+", help="program and options of the text, behind --")
    args = parser.parse_args()
    command = args.command
    draw = random.Random(args.seed)
    prompt_bytes = args.prompt_tokens * args.token_bytes
    end_bytes = prompt_bytes + args.new_tokens * args.token_bytes
    in_prompt = args.kills // 5
    sizes = sorted([draw.randrange(prompt_bytes) for _ in range(in_prompt)] +
                   [draw.randrange(prompt_bytes, end_bytes) for _ in range(args.kills - in_prompt)])
    if os.path.exists(args.session):
        os.remove(args.session)

    whole_text = args.session + ".whole.txt"
    code, whole_seconds = run(command + ["-n", str(args.new_tokens)], whole_text)
    if code != 0:
        sys.exit(f"the run that is left alone ended with {code}")
    with open(whole_text, "rb") as file:
        whole = file.read()

    killed = command + ["-n", str(args.new_tokens), "--session", args.session] + shlex.split(args.killed_extra)
    deaths = []
    text = args.session + ".killed.txt"
    for size in sizes:
        with open(text, "wb") as out:
            process = subprocess.Popen(killed, stdout=out, stderr=subprocess.PIPE)
            while process.poll() is None:
                if os.path.exists(args.session) and os.path.getsize(args.session) >= size:
                    process.kill()
                    process.wait()
                    break
                time.sleep(0.002)
        deaths.append({"at_bytes": size, "left_bytes": os.path.getsize(args.session), "code": process.returncode})
        print(deaths[-1], flush=True)
    code, last_seconds = run(killed, text)
    with open(text, "rb") as file:
        last = file.read()
    same = code == 0 and last == whole
    result = {"same": same, "whole_bytes": len(whole), "last_run_bytes": len(last), "code": code,
              "killed": sum(death["code"] == -9 for death in deaths), "deaths": deaths,
              "whole_seconds": round(whole_seconds, 1), "last_seconds": round(last_seconds, 1)}
    print(json.dumps(result))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    sys.exit(0 if same else 1)


main()
