#!/usr/bin/env python3
"""Compares plain and speculative decoding on a conversation whose kind of text changes: ratios by windows of the text.

  tools/dev/chat_windows.py PROGRAM -m MODEL [--draft auto] [--pairs 5] [-n 400] [--window 200] [--extra '-t 1'] [--json OUT]

The conversation has three turns (prose, code, a list) in one process, so that what the drafter has learnt in one turn
affects the next. The arrival time of each byte of the answers is recorded. A window is as many bytes of a turn as hold
about --window tokens. Its ratio is the seconds of plain decoding over those of speculative decoding, the median over
the pairs. The rest of a turn that is shorter than a window is left out.
"""
import argparse
import json
import os
import re
import select
import statistics
import subprocess
import time

TURNS = ('Write the opening of a novel about a lighthouse keeper who finds a letter. Use long, vivid sentences and no lists.',
         'Now write a Python module with a class LetterBox that stores letters, with methods add, remove, find_by_sender, '
         'find_by_date, to_json and from_json, with docstrings.',
         'Now give a numbered list of a hundred things that a lighthouse keeper needs, one short line each.')
STILL = 6.0  # seconds without a byte after which a turn counts as ended


def answers(args, draft):
    """Returns for each turn the bytes of the answer and the arrival time of each byte."""
    command = [args.program, 'chat', '-q', '--no-config', '-m', args.model, '-n', str(args.tokens), '--ctx', str(args.ctx), '--temperature',
               '0', '--tables', 'off', '--draft', draft, *args.extra.split()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        turns = []
        for turn in TURNS:
            program.stdin.write(turn.encode() + b'\n')
            program.stdin.flush()
            text, times = b'', []
            while select.select([program.stdout], [], [], STILL if text else 120)[0]:
                fresh = os.read(program.stdout.fileno(), 65536)
                if not fresh:
                    break
                text += fresh
                times += [time.monotonic()] * len(fresh)
            turns.append((text, times))
        program.stdin.close()
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('-m', dest='model', required=True)
    parser.add_argument('--draft', default='auto')
    parser.add_argument('-n', dest='tokens', type=int, default=400)
    parser.add_argument('--ctx', type=int, default=4096)
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--window', type=int, default=200)
    parser.add_argument('--extra', default='')
    parser.add_argument('--json')
    args = parser.parse_args()
    pairs = [(answers(args, 'none'), answers(args, args.draft)) for _ in range(args.pairs)]
    rows, equal = [], True
    for turn, _ in enumerate(TURNS):
        text = pairs[0][0][turn][0]
        if any(run[turn][0] != text for pair in pairs for run in pair):
            print(f'turn {turn + 1}: texts differ, or one stood still for {STILL:g} s; left out', flush=True)
            equal = False
            continue
        # Words, digits and signs: about as many as tokens. Both runs use the same byte borders, so the ratio does not
        # depend on the estimate.
        ends = [found.end() for found in re.finditer(rb' ?[A-Za-z]+|\d| *[^A-Za-z\d ]', text)]
        for first in range(0, len(ends) - args.window, args.window):
            begin, end = ends[first], ends[first + args.window] - 1
            ratios = [(plain[turn][1][end] - plain[turn][1][begin]) / (guessed[turn][1][end] - guessed[turn][1][begin])
                      for plain, guessed in pairs]
            rows.append({'turn': turn, 'first_byte': begin, 'ratio': statistics.median(ratios), 'lowest': min(ratios)})
            print(f"turn {turn + 1}, from byte {begin:5d}: {rows[-1]['ratio']:.3f} (lowest {rows[-1]['lowest']:.3f})", flush=True)
    if not rows:
        raise SystemExit('no window was measured')
    print(f"lowest window {min(row['ratio'] for row in rows):.3f}, texts equal: {equal}")
    if args.json:
        with open(args.json, 'w', encoding='utf-8') as file:
            json.dump({'options': vars(args), 'windows': rows, 'texts_equal': equal}, file, indent=1)


if __name__ == '__main__':
    main()
