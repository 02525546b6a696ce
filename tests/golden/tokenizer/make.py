#!/usr/bin/env python3
"""Golden ids by the sentencepiece package (Apache-2.0), the original of what runtime/text/tokenizer implements.

    python3 make.py NAME=TOKENIZER.MODEL ...      needs: sentencepiece, protobuf

writes NAME.txt: a line a text, the text's UTF-8 bytes in hex, a tab, its ids. fairy.txt belongs to
tools/demo_model/target/tokenizer.model, variant_*.txt to changed copies of it that the test makes in the same way (see
variants() here and in sentencepiece_test.cpp), llama2.txt and stories260K.txt to published models.

    python3 make.py --corpus DIR

writes the seed corpus of the SentencePiece fuzz target: tiny models of every kind that the reader tells apart.
"""
import random
import sys
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

MARK = "\u2581"
HERE = Path(__file__).parent
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

FIXED = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n\n", "\t\n", " \n", "Hello world", " Hello world", "Hello  world ", "<s>", "</s> x",
    "<unk>", "<0x41>", MARK, "a" + MARK + "b " + MARK, "Once upon a time, there was a little fairy.", "don't", "1234567890", "3.14159",
    "Führer", "naïve café", "нещо на Български", "កាន់តែពិសេសអាច", "你好，世界", "🦙🚀 (normal) 👨‍👩‍👧", "e\u0301 = \u00e9", "\u200b\ufeff", "\x00\x01\x7f",
    "a" * 70, "ab " * 12, "the" * 20, " " * 33, "=" * 40, "aAaAaA", "if (x) {\n    return y;\n}\n", "\u0130stanbul", "\U0010ffff",
]


def texts(count):
    random.seed(11)
    pools = ["abcdefghijklmnoprstuvw   \n.,'\"", f" {MARK}a ", "0123456789 ", "éèñüßÀ ", "привет мир ", "你好世界的是 ", "🦙😀👨‍👩‍👧 ",
             "".join(map(chr, range(1, 256)))]
    result = list(FIXED)
    while len(result) < count:
        length = random.randint(1, 24)
        if random.random() < 0.75:
            result.append("".join(random.choice(random.choice(pools)) for _ in range(length)))
        else:
            points = (random.randrange(1, 0x110000) for _ in range(length))
            result.append("".join(chr(point) for point in points if not 0xD800 <= point < 0xE000))
    return result


BLANKS = ["a b", " the", "x  y", "\n \n", "  ", "e ", MARK + "a ", "o" + MARK + "n", "[A B]", " ", "b" + MARK + MARK]


def texts_with_blanks(count):
    """Texts with the symbols of BLANKS, spelt with either kind of blank, at borders of words and within."""
    random.seed(12)
    parts = BLANKS + [blank.replace(" ", MARK) for blank in BLANKS] + [blank.strip() for blank in BLANKS] + list("abeno xy  t[]\n")
    result = []
    while len(result) < count:
        result.append("".join(random.choice(parts) for _ in range(random.randint(1, 10))))
    return result


def add(model, text, score, kind):
    for piece in model.pieces:
        if piece.piece == text:
            piece.type = kind
            return
    model.pieces.add(piece=text, score=score, type=kind)


def variants(model_bytes):
    """Changed copies of the bundled vocabulary: one for every rule that the bundled one itself does not use."""
    def no_bytes(model):
        model.trainer_spec.byte_fallback = False
        for piece in model.pieces:
            if piece.type == BYTE:
                piece.type = NORMAL

    def unused(model):
        for number, piece in enumerate(model.pieces):
            if piece.type == NORMAL and number % 3 == 0:
                piece.type = UNUSED

    def user_defined(model):
        for text in ["ab", "abc", MARK + "a" + MARK, "the", "\n\n", "你好", ".,"]:
            add(model, text, 0, USER_DEFINED)

    def across_words(model):
        for text in ["e" + MARK + "a", "n" + MARK, MARK + "a" + MARK + "b"]:
            add(model, text, 5, NORMAL)

    def ties(model):
        for piece in model.pieces:
            if piece.type == NORMAL:
                piece.score = int(piece.score / 500)

    def extra_whitespace(model):
        model.normalizer_spec.remove_extra_whitespaces = True

    def no_prefix(model):
        model.normalizer_spec.add_dummy_prefix = False

    def blanks(model):
        for text in BLANKS:
            add(model, text, 0, USER_DEFINED)

    def blanks_tidied(model):
        blanks(model)
        model.normalizer_spec.remove_extra_whitespaces = True

    def blanks_unigram(model):
        blanks_tidied(model)
        model.trainer_spec.model_type = 1

    for change in [no_bytes, unused, user_defined, across_words, ties, extra_whitespace, no_prefix]:
        yield change.__name__, changed(model_bytes, change), texts(100)
    for change in [blanks, blanks_tidied, blanks_unigram]:
        yield change.__name__, changed(model_bytes, change), texts_with_blanks(250)


def changed(model_bytes, change):
    model = proto.ModelProto()
    model.ParseFromString(model_bytes)
    change(model)
    return model.SerializeToString()


def write_golden(name, model_bytes, all_texts):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model_bytes)
    lines = [f"{text.encode().hex()}\t{' '.join(map(str, processor.encode(text)))}" for text in all_texts]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")


def tiny_model():
    model = proto.ModelProto()
    for text, kind in [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]:
        model.pieces.add(piece=text, score=0, type=kind)
    for number, text in enumerate([MARK + "a", "ab", MARK + "ab", "abc", MARK, "a", "b", "c", "\u00e9"]):
        model.pieces.add(piece=text, score=-number, type=NORMAL)
    model.trainer_spec.model_type = 2
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    return model


def write_corpus(folder):
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, change):
        model = tiny_model()
        change(model)
        (folder / f"{name}.model").write_bytes(model.SerializeToString())

    def bytes_and_user_defined(model):
        model.trainer_spec.byte_fallback = True
        for value in range(256):
            model.pieces.add(piece=f"<0x{value:02X}>", score=0, type=BYTE)
        model.pieces.add(piece="ab" + MARK + "c", score=0, type=USER_DEFINED)

    def unused(model):
        model.pieces[5].type = UNUSED
        model.pieces[6].type = UNUSED

    def turns(model):
        for text in ["<|a|>", "</s> ", "<start_of_turn>", "a  b"]:
            model.pieces.add(piece=text, score=0, type=USER_DEFINED)
        model.normalizer_spec.remove_extra_whitespaces = True

    write("plain", lambda model: None)
    write("bytes_and_user_defined", bytes_and_user_defined)
    write("unused", unused)
    write("turns", turns)
    write("extra_whitespace", lambda model: model.normalizer_spec.ClearField("remove_extra_whitespaces"))
    write("unigram", lambda model: model.trainer_spec.ClearField("model_type"))
    write("nmt_nfkc", lambda model: setattr(model.normalizer_spec, "precompiled_charsmap", b"\x08\x00\x00\x00rules"))
    write("suffix", lambda model: setattr(model.trainer_spec, "treat_whitespace_as_suffix", True))
    write("bos_out_of_range", lambda model: setattr(model.trainer_spec, "bos_id", 99))
    write("nan_score", lambda model: setattr(model.pieces[4], "score", float("nan")))
    write("twice", lambda model: setattr(model.pieces[4], "piece", "a"))
    whole = tiny_model().SerializeToString()
    (folder / "truncated.model").write_bytes(whole[:-7])
    (folder / "length_beyond_end.model").write_bytes(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
    (folder / "empty.model").write_bytes(b"")


def main():
    if sys.argv[1:2] == ["--corpus"]:
        write_corpus(Path(sys.argv[2]))
        return
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        model_bytes = Path(path).read_bytes()
        write_golden(name, model_bytes, texts(160))
        if name == "fairy":
            for variant, variant_bytes, variant_texts in variants(model_bytes):
                write_golden(f"variant_{variant}", variant_bytes, variant_texts)


main()
