#!/usr/bin/env python3
"""Compares lists of --draft on real prompts, in turn: tokens/s, tokens per pass, ratios, equal texts.

  tools/dev/real_prompts.py PROGRAM -m MODEL.gguf --questions question.jsonl [--sets 'none;auto'] [--pairs 5] [-n 256]
      [--extra '-t 1'] [--json OUT]

The questions are those of Spec-Bench, one JSON object per line: {"category": ..., "turns": [...]}. The first turn of the
first PER questions of each group is asked through the model's template, each in a process of its own. The first set is
the baseline: a ratio is the median over pairs of its seconds per token over those of the set. Prints a line per prompt
and one for all prompts; --json writes a row per prompt and set.
"""
import argparse
import json
import statistics
import subprocess
import tempfile

GROUPS = 'coding,extraction,translation,summarization,qa,math_reasoning,rag'


def ask(args, folder, question, draft):
    with open(f'{folder}/prompt', 'w', encoding='utf-8') as file:
        file.write(question)
    words = draft.split()
    command = [args.program, 'generate', '-q', '--no-config', '-m', args.model, '--prompt-file', f'{folder}/prompt', '-n',
               str(args.tokens), '--ctx', str(args.ctx), '--temperature', str(args.temperature), '--seed', '7', '--tables',
               'off', '--stats', f'{folder}/stats', *args.extra.split(), '--draft', *words]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f'{draft}: exit {done.returncode}: {done.stderr.decode(errors="replace")[-300:]}')
    with open(f'{folder}/stats', encoding='utf-8') as file:
        stats = json.load(file)
    return {'text': done.stdout, 'tokens': stats['generated_tokens'], 'passes': stats['passes'],
            'nodes': stats['budget_mean'], 'a_token': stats['decode_seconds'] / max(1, stats['generated_tokens'])}


def row_of(group, draft, runs, plain):
    ratios = [p['a_token'] / r['a_token'] for p, r in zip(plain, runs)]
    tokens = sum(r['tokens'] for r in runs)
    return {'group': group, 'set': draft, 'ratio': statistics.median(ratios), 'worst': min(ratios),
            'tokens_per_second': 1 / statistics.median(r['a_token'] for r in runs),
            'tokens_per_pass': tokens / sum(r['passes'] for r in runs),
            'budget': statistics.mean(r['nodes'] for r in runs),
            'seconds': sum(r['a_token'] * r['tokens'] for r in runs), 'tokens': tokens,
            'texts_equal': all(r['text'] == plain[0]['text'] for r in runs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('-m', dest='model', required=True)
    parser.add_argument('--questions', required=True)
    parser.add_argument('-n', dest='tokens', type=int, default=256)
    parser.add_argument('--ctx', type=int, default=4096)
    parser.add_argument('--temperature', type=float, default=0)
    parser.add_argument('--sets', default='none;auto')
    parser.add_argument('--groups', default=GROUPS)
    parser.add_argument('--per', type=int, default=2)
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--extra', default='')
    parser.add_argument('--json')
    args = parser.parse_args()
    sets = [one.strip() for one in args.sets.split(';')]
    with open(args.questions, encoding='utf-8') as file:
        questions = [json.loads(line) for line in file]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for group in args.groups.split(','):
            for question in [q for q in questions if q['category'] == group][:args.per]:
                runs = {draft: [] for draft in sets}
                for _ in range(args.pairs):
                    for draft in sets:
                        runs[draft].append(ask(args, folder, question['turns'][0], draft))
                made = [row_of(group, draft, runs[draft], runs[sets[0]]) for draft in sets]
                rows += made
                print(f'{group:15s} ' + ' | '.join(
                    f"{r['set']}: {r['tokens_per_second']:.1f} tokens/s, {r['tokens_per_pass']:.2f} a pass, trees "
                    f"{r['budget']:.1f}, {r['ratio']:.2f}x" for r in made), flush=True)
    for draft in sets[1:]:
        mine = [r for r in rows if r['set'] == draft]
        plain = [r for r in rows if r['set'] == sets[0]]
        def rate(which):
            return sum(r['tokens'] for r in which) / sum(r['seconds'] for r in which)
        print(f"{draft}: {rate(mine) / rate(plain):.3f}x in all; worst start {min(r['worst'] for r in mine):.2f}; texts "
              f"equal: {all(r['texts_equal'] for r in mine)}")
    if args.json:
        with open(args.json, 'w', encoding='utf-8') as file:
            json.dump(rows, file, indent=1)


if __name__ == '__main__':
    main()
