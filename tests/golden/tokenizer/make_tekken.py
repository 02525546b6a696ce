#!/usr/bin/env python3
"""A small tekken.json of our own, and the ids that mistral-common makes with it.

    python3 make_tekken.py file              writes tekken/tekken.json, with the merges of trained/tekken.json
    python3 make_tekken.py golden            writes tekken/ids.txt
    python3 make_tekken.py corpus DIR        writes seeds of the fuzz target tokenizer_json under DIR
    python3 make_tekken.py published FILE    writes published_tekken.txt, the ids of a published tekken.json

needs: mistral-common. Files with ids have the form of the golden files of make_trained.py, with one run.
published_tekken.txt was written for tekken_240911.json, which mistral-common 1.13.1 contains.
"""
import base64
import json
import sys
from pathlib import Path

from random_texts import hash_of, random_texts

HERE = Path(__file__).parent
FILE = HERE / "tekken" / "tekken.json"
N_TEXTS = 20000
N_SAMPLE = 40
N_SPECIAL = 40
# By rank; those left out are called <SPECIAL_n>.
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
           "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[THINK]", "[/THINK]"]
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Tokens past the end of the vocabulary, which a reader must cut off: they would change the ids of most texts.
CUT_OFF = [b"e ", b" a", b"12", b"\xe4\xbd\xa0\xe5\xa5\xbd", b"\xf0\x9f\xa6\x99"]


def bytes_of_letters():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + number): byte for number, byte in enumerate(others)}


def merged_tokens():
    """The tokens that merges make in trained/tekken.json, in the order of the merges."""
    letters = bytes_of_letters()
    merges = json.loads((HERE / "trained" / "tekken.json").read_text())["model"]["merges"]
    return [bytes(letters[letter] for letter in "".join(pair)) for pair in merges]


def text_or_null(token):
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def tekken(tokens, cut_off, special, n_special):
    tokens = [bytes([byte]) for byte in range(256)] + tokens
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text_or_null(token)}
             for rank, token in enumerate(tokens + cut_off)]
    config = {"pattern": PATTERN, "num_vocab_tokens": len(vocab), "default_vocab_size": n_special + len(tokens),
              "default_num_special_tokens": n_special, "version": "v13"}
    return {"config": config, "vocab": vocab,
            "special_tokens": [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(special)],
            "image": {"image_patch_size": 14, "max_image_size": 1540, "spatial_merge_size": 2}}


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_file():
    tokens = list(dict.fromkeys(merged_tokens() + [b"</s>", b"[INST]"]))  # ordinary tokens spelt like special ones
    write(FILE, tekken(tokens, [token for token in CUT_OFF if token not in tokens], SPECIAL, N_SPECIAL))


def encode_all(path):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    tokenizer = Tekkenizer.from_file(path)
    texts = random_texts(N_TEXTS)
    # Every tenth text with the spelling of a special token, which mistral-common never makes of text.
    special = [tokenizer.id_to_piece(rank) for rank in range(len(SPECIAL))]
    texts = [text + special[number // 10 % len(special)] if number % 10 == 0 else text for number, text in enumerate(texts)]
    return texts, [tokenizer.encode(text, bos=False, eos=False) for text in texts]


def write_golden(file, golden):
    texts, ids = encode_all(file)
    lines = [f"{hash_of(ids):016x}"]
    lines += [f"{text.encode().hex()}\t{' '.join(map(str, numbers))}" for text, numbers in zip(texts[:N_SAMPLE], ids)]
    golden.write_text("\n".join(lines) + "\n")


def write_corpus(folder):
    tokens = [b"ab", b"abc", b" a", b"</s>"]
    write(folder / "tekken_file.json", tekken(tokens, [b"12"], SPECIAL[:3], 4))
    without_list = tekken(tokens, [], [], 20)
    del without_list["special_tokens"]
    without_list["config"]["version"] = "v3"
    write(folder / "tekken_file_v3.json", without_list)


def main():
    if sys.argv[1] == "file":
        write_file()
    elif sys.argv[1] == "golden":
        write_golden(FILE, FILE.parent / "ids.txt")
    elif sys.argv[1] == "corpus":
        write_corpus(Path(sys.argv[2]))
    else:
        write_golden(sys.argv[2], HERE / "published_tekken.txt")


main()
