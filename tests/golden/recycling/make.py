"""Golden data of Token Recycling: a plain reference of matrix, static tree and greedy verification (Luo et al. 2024,
arXiv 2408.08696), run on the bundled model's own logits.

usage: make.py MODEL_DIR PROMPT_FILE... > steps.txt
Needs torch, transformers, sentencepiece. Made with torch 2.15.0, transformers 5.23.0 and tools/demo_model: the target, and
the prompts the_well.txt and three_sons.txt. 60 passes a prompt, the matrix kept from one to the next (hot start).

Lines of steps.txt, in the order of the run:
  r ROW               a row of eight candidates, best first, three hexadecimal digits each; numbered from 0
  p TOKEN             a new text, and its last token
  t TOKEN,PARENT ...  the nodes that the reference drafts under node 0 (all other numbers are decimal)
  l ROW ...           what the model says at each node, node 0 first
  a NODE ...          the nodes accepted, node 0 first
  n TOKEN             the model's own token behind them: the next root
"""
import sys

import sentencepiece
import torch
from transformers import AutoModelForCausalLM

K = 8
STEPS = 60
CHILDREN = {
    "": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1,
    "00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1,
    "20": 1, "30": 1, "40": 1, "50": 1,
    "000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1, "300": 1,
    "0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1,
    "00000": 2, "00010": 1,
}


def draft(matrix, root):
    """Tokens and parents, layer by layer; a row that was never filled gives no children."""
    tokens, parents, layer = [root], [-1], [("", 0)]
    while layer:
        below = []
        for path, node in layer:
            row = matrix.get(tokens[node])
            for rank in range(CHILDREN.get(path, 0) if row else 0):
                tokens.append(row[rank])
                parents.append(node)
                below.append((path + str(rank), len(tokens) - 1))
        layer = below
    return tokens, parents


def verify(tokens, parents, rows):
    """The longest path whose tokens are the best at their parents, node 0 first."""
    accepted = [0]
    while True:
        best = rows[accepted[-1]][0]
        children = [i for i in range(len(tokens)) if parents[i] == accepted[-1] and tokens[i] == best]
        if not children:
            return accepted
        accepted.append(children[0])


def logits_of_tree(model, text, tokens, parents):
    """[nodes, vocab]: text without its last token, then the tree, each node seeing the text and its own path."""
    n = len(text) - 1
    total = n + len(tokens)
    sees = torch.zeros(total, total, dtype=torch.bool)
    sees[:n, :n] = torch.tril(torch.ones(n, n, dtype=torch.bool))
    positions = list(range(n))
    for i, parent in enumerate(parents):
        if parent < 0:
            sees[n + i, :n] = True
            positions.append(n)
        else:
            sees[n + i] = sees[n + parent]
            positions.append(positions[n + parent] + 1)
        sees[n + i, n + i] = True
    mask = torch.where(sees, 0.0, torch.finfo(torch.float32).min)[None, None]
    out = model(input_ids=torch.tensor([text[:-1] + tokens]), attention_mask=mask,
                position_ids=torch.tensor([positions]), use_cache=False)
    return out.logits[0, n:]


def main():
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation="eager").eval()
    pieces = sentencepiece.SentencePieceProcessor(sys.argv[1] + "/tokenizer.model")
    matrix, numbers, committed = {}, {}, 0
    for prompt in sys.argv[2:]:
        text = [pieces.bos_id()] + pieces.encode(open(prompt, encoding="utf-8").read())
        print("p", text[-1])
        for _ in range(STEPS):
            tokens, parents = draft(matrix, text[-1])
            with torch.no_grad():
                logits = logits_of_tree(model, text, tokens, parents)
            # Ties to the lowest id: sorted by falling value, then by id.
            order = torch.argsort(-logits.double(), dim=1, stable=True)[:, :K]
            rows = [tuple(row) for row in order.tolist()]
            for row in rows:
                if row not in numbers:
                    numbers[row] = len(numbers)
                    print("r", "".join(f"{token:03x}" for token in row))
            accepted = verify(tokens, parents, rows)
            own = rows[accepted[-1]][0]
            print("t", *(f"{token},{parent}" for token, parent in zip(tokens[1:], parents[1:])))
            print("l", *(numbers[row] for row in rows))
            print("a", *accepted)
            print("n", own)
            text += [tokens[node] for node in accepted[1:]] + [own]
            committed += len(accepted)
            for token, row in zip(tokens, rows):  # the last occurrence in the order of the tree stays
                matrix[token] = row
    print(f"{committed / (STEPS * len(sys.argv[2:])):.2f} tokens a pass, {len(numbers)} rows", file=sys.stderr)


main()
