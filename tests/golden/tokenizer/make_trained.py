#!/usr/bin/env python3
"""Small vocabularies of our own, one for every way that text can take to its ids, and what the original packages make of it.

    python3 make_trained.py train TEXT [NAMES] trains trained/*; TEXT is any English text of a few hundred kilobytes
    python3 make_trained.py golden [NAMES]     writes trained/*.txt from trained/*
    python3 make_trained.py published DIR     writes published_*.txt for the published vocabularies under DIR
    python3 make_trained.py corpus DIR        writes seeds of the fuzz targets under DIR: the same files, made small

needs: tokenizers, sentencepiece, protobuf, tiktoken. A golden file holds the hash of the ids of 20,000 random texts
(random_texts.py), twice for a tokenizer.json, special tokens as text and parsed, and the first texts with their ids: a line
a text, UTF-8 in hex, a tab, the ids. TEXT was the first 300,000 bytes of the public-domain children's books that the bundled
model is trained on; for gemma4, of pages of this project.
"""
import base64
import json
import sys
from pathlib import Path

from random_texts import POOLS, Random, hash_of, random_texts

HERE = Path(__file__).parent
TRAINED = HERE / "trained"
MARK = "\u2581"
N_TEXTS = 20000
N_SAMPLE = 40
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r" ?[^\s\p{L}\p{N}]", r" ?[^\s\p{L}\p{M}\p{N}]")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}"
         rf"|\p{{N}}{{1,3}}|{REST}")
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|{REST}"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def training_lines(path):
    lines = Path(path).read_text(encoding="utf-8", errors="ignore")[:300000].split("\n")
    random = Random(7)
    for _ in range(1500):
        pool = POOLS[random.below(len(POOLS) - 1)]
        lines.append(" ".join("".join(pool[random.below(len(pool))] for _ in range(1 + random.below(6))) for _ in range(8)))
    return lines


def byte_level(pre_tokenizers, use_regex, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def tokenizers_to_train():
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    def split(pattern, behavior="isolated", invert=False):
        return pre_tokenizers.Split(Regex(pattern), behavior, invert)

    def bytes_behind(*steps):
        return pre_tokenizers.Sequence([*steps, byte_level(pre_tokenizers, False)])

    def byte_bpe(pre_tokenizer, normalizer=None, **options):
        tokenizer = Tokenizer(models.BPE(**options))
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=520, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                      show_progress=False, special_tokens=["<|endoftext|>"])
        return tokenizer, trainer

    def character_bpe(special, byte_fallback, **options):
        tokenizer = Tokenizer(models.BPE(byte_fallback=byte_fallback, unk_token="<unk>", **options))
        fallback = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
        trainer = trainers.BpeTrainer(vocab_size=len(fallback) + 330, special_tokens=special + fallback, show_progress=False,
                                      limit_alphabet=120)
        return tokenizer, trainer

    gpt2, trainer = byte_bpe(byte_level(pre_tokenizers, True))
    yield "gpt2", gpt2, trainer, []

    prefix, trainer = byte_bpe(byte_level(pre_tokenizers, True, prefix=True))
    yield "prefix_space", prefix, trainer, [
        AddedToken("<mask>", lstrip=True, special=True), AddedToken("[R]", rstrip=True, special=True),
        AddedToken("[B]", lstrip=True, rstrip=True, normalized=False), AddedToken("ab", single_word=True),
        AddedToken(" a ", normalized=False), AddedToken("mir\u00e9", normalized=True)]

    llama3, trainer = byte_bpe(bytes_behind(split(LLAMA3)), ignore_merges=True)
    yield "llama3", llama3, trainer, [AddedToken("<|begin|>", special=True), AddedToken("<|eot_id|>", special=True)]

    qwen2, trainer = byte_bpe(bytes_behind(split(QWEN2)), normalizers.NFC())
    yield "qwen2", qwen2, trainer, [AddedToken("<|im_end|>", special=True), AddedToken("\u00e9\u0301", normalized=True)]

    qwen35, trainer = byte_bpe(bytes_behind(split(QWEN35)), normalizers.NFC())
    yield "qwen35", qwen35, trainer, [AddedToken("<|im_end|>", special=True), AddedToken("<think>", special=False)]

    o200k, trainer = byte_bpe(bytes_behind(split(O200K)))
    yield "o200k", o200k, trainer, [AddedToken("<|end|>", special=True), AddedToken("<|user|>", special=True)]

    coder, trainer = byte_bpe(bytes_behind(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        pre_tokenizers.Digits(True)))
    yield "deepseek_coder", coder, trainer, []

    falcon, trainer = byte_bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(pre_tokenizers, True), pre_tokenizers.Digits(False),
        split("[0-9][0-9][0-9]")]))
    yield "falcon", falcon, trainer, []

    starcoder, trainer = byte_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(pre_tokenizers, True)]))
    yield "starcoder", starcoder, trainer, []

    tekken, trainer = byte_bpe(bytes_behind(split(TEKKEN)), ignore_merges=True)
    yield "tekken", tekken, trainer, []

    bloom, trainer = byte_bpe(bytes_behind(split(BLOOM)))
    yield "bloom", bloom, trainer, []

    odd, trainer = byte_bpe(bytes_behind(
        split(r"\w+|[^\w\s]+", "merged_with_next", True), split(r"(?=\d{2})"), split(r"\d{1,2}+", "contiguous"),
        split("[a-c]", "merged_with_previous"), split(r"^\s|\s$|[\p{Han}\h]" .replace(r"\h", "x"), "removed")),
        normalizers.Sequence([normalizers.NFD(), normalizers.Strip(), normalizers.Lowercase(),
                              normalizers.Replace(Regex("[ \t]{2,}"), " ")]))
    yield "odd_steps", odd, trainer, [AddedToken("The End", normalized=True), AddedToken("<X>", normalized=False)]

    llama2, trainer = character_bpe(["<unk>", "<s>", "</s>"], True, fuse_unk=True)
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    llama2.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                        decoders.Strip(" ", 1, 0)])
    yield "llama2", llama2, trainer, [AddedToken("</s>", rstrip=True, special=True, normalized=False)]

    gemma, trainer = character_bpe(["<unk>", "<bos>"], True, fuse_unk=True)
    gemma.normalizer = normalizers.Replace(" ", MARK)
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma", gemma, trainer, [AddedToken("\n\n\n", normalized=False)]

    # Merges do not cross newlines, as in the published vocabulary: GGUF readers cut there.
    gemma4, trainer = character_bpe(["<pad>", "<eos>", "<bos>", "<unk>"], True, fuse_unk=True)
    gemma4.normalizer = normalizers.Replace(" ", MARK)
    gemma4.pre_tokenizer = split("[^\n]+|\n+")
    gemma4.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma4", gemma4, trainer, [
        AddedToken(token, special=True, normalized=False)
        for token in ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>")]

    metaspace, trainer = character_bpe(["<unk>", "<s>"], False, fuse_unk=True)
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    metaspace.decoder = decoders.Metaspace(prepend_scheme="first", split=True)
    yield "metaspace", metaspace, trainer, []

    words, trainer = character_bpe(["<unk>"], False, fuse_unk=False)
    words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    yield "words", words, trainer, []

    def unigram(special, **options):
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=420, special_tokens=special, unk_token="<unk>", show_progress=False, **options)
        return tokenizer, trainer

    unigram_plain, trainer = unigram(["<unk>", "<s>", "</s>"])
    unigram_plain.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram_plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    unigram_plain.decoder = decoders.Metaspace(prepend_scheme="always")
    yield "unigram", unigram_plain, trainer, []

    unigram_bytes, trainer = unigram(["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)])
    unigram_bytes.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                           pre_tokenizers.Metaspace(prepend_scheme="always")])
    unigram_bytes.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="always"), decoders.ByteFallback()])
    yield "unigram_bytes", unigram_bytes, trainer, []


TEMPLATES = {  # name -> tokens in front and behind
    "llama3": (["<|begin|>"], []), "llama2": (["<s>"], []), "unigram": ([], ["</s>"]), "gemma": (["<bos>"], []),
    "gemma4": (["<bos>"], []),
}


def post_processor(name, tokenizer):
    before, after = TEMPLATES[name]

    def special(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [special(token) for token in before] + [text] + [special(token) for token in after]
    ids = {token: {"id": token, "ids": [tokenizer.token_to_id(token)], "tokens": [token]} for token in before + after}
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": ids}


def train_tokenizers(lines, names=()):
    for name, tokenizer, trainer, added in tokenizers_to_train():
        if names and name not in names:
            continue
        more = []
        if name == "gemma4":
            more = ["\n" * (1 + n % 4) for n in range(400)]
        if name == "qwen35":  # so many that letters are merged with the marks after them
            more = ["\u0939\u093f\u0928\u094d\u0926\u0940 \u0926\u0947\u0935 \u0926\u093f\u0928"] * 2000
        tokenizer.train_from_iterator(lines + more, trainer)
        tokenizer.add_tokens([token for token in added if not token.special])
        tokenizer.add_special_tokens([token for token in added if token.special])
        data = json.loads(tokenizer.to_str())
        # Byte tokens are the model's own, as in published files.
        data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
        if name == "gemma4":  # what published files write, which cuts nothing: no space is left
            data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                     "invert": False}
        if name == "unigram_bytes":
            data["model"]["byte_fallback"] = True
        if name in TEMPLATES:
            data["post_processor"] = post_processor(name, tokenizer)
        if name in ("llama2", "qwen2"):  # as files were before version 0.20
            data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
        (TRAINED / f"{name}.json").write_text(json.dumps(data, ensure_ascii=name == "falcon", separators=(",", ":")) + "\n")


def train_sentencepiece(lines):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto

    def train(name, **options):
        writer = open(TRAINED / f"{name}.model", "wb")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=writer, vocab_size=options.pop("vocab_size", 420), num_threads=1,
            character_coverage=options.pop("character_coverage", 0.98), minloglevel=2, hard_vocab_limit=False, **options)
        writer.close()
        model = proto.ModelProto()
        path = TRAINED / f"{name}.model"
        model.ParseFromString(path.read_bytes())
        model.trainer_spec.ClearField("input")
        model.trainer_spec.ClearField("model_prefix")
        path.write_bytes(model.SerializeToString())

    train("spm_unigram", model_type="unigram", normalization_rule_name="identity", byte_fallback=True, vocab_size=680,
          remove_extra_whitespaces=False, user_defined_symbols=["ab", "\u2581the", "<x>", "\u4f60\u597d"], control_symbols=["<c>"])
    train("spm_bpe_rules", model_type="bpe", normalization_rule_tsv=str(write_rules()), remove_extra_whitespaces=True)
    train("spm_unigram_rules", model_type="unigram", normalization_rule_tsv=str(write_rules()), remove_extra_whitespaces=True,
          user_defined_symbols=["\uff21b", "a  b"])
    (TRAINED / "rules.tsv").unlink()

    # The same rules behind the tokenizers package's own reading of them.
    model = proto.ModelProto()
    model.ParseFromString((TRAINED / "spm_unigram_rules.model").read_bytes())
    data = json.loads((TRAINED / "unigram.json").read_text())
    rules = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": rules}]}
    (TRAINED / "unigram_rules.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_rules():
    """A few rules of every kind; those that come with the package would fill 300 KB."""
    rules = {"\uff21": "A", "\ufb01": "fi", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u2028": " ", "\t": " ", "\n": " ",
             "e\u0301": "\u00e9", "\u1100\u1161": "\uac00", "\u1100\u1161\u11a8": "\uac01", "\u2026": "...", "\u0131": "i",
             "\u017f": "s", "ab": "ba", "\U0001f600": ":)", "\u0308": ""}
    path = TRAINED / "rules.tsv"
    path.write_text("".join("{}\t{}\n".format(" ".join(f"{ord(c):X}" for c in what), " ".join(f"{ord(c):X}" for c in content))
                            for what, content in rules.items()))
    return path


def alphabet():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    result = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    result.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return result


def train_ranks():
    """A tiktoken file out of a byte-level vocabulary: bytes first, then what merges make, in order."""
    vocabulary = json.loads((TRAINED / "llama3.json").read_text())["model"]["vocab"]
    bytes_of = alphabet()
    tokens = [bytes(bytes_of[c] for c in token) for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])
              if not token.startswith("<|")]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    (TRAINED / "ranks.tiktoken").write_text("\n".join(lines) + "\n")


def write_golden(path, texts, *runs):
    lines = [" ".join(f"{hash_of(ids):016x}" for ids in runs)]
    lines += [f"{text.encode().hex()}\t{' '.join(map(str, ids))}" for text, ids in zip(texts[:N_SAMPLE], runs[-1])]
    path.write_text("\n".join(lines) + "\n")


def encode_json(tokenizer, texts):
    runs = []
    for as_text in (True, False):
        tokenizer.encode_special_tokens = as_text
        runs.append([tokenizer.encode(text, add_special_tokens=False).ids for text in texts])
    return runs


def with_spellings(texts, contents):
    """Every fifth text with spellings of added tokens in it."""
    random = Random(3)
    result = []
    for number, text in enumerate(texts):
        if number % 5 == 0 and contents:
            for _ in range(1 + random.below(3)):
                at = random.below(len(text) + 1)
                space = ["", " ", "  "][random.below(3)]
                text = text[:at] + space + contents[random.below(len(contents))] + space + text[at:]
        result.append(text)
    return result


def tiktoken_encoding(path, pattern):
    import tiktoken
    ranks = {}
    for line in Path(path).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding("golden", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def golden(names=()):
    import sentencepiece
    from tokenizers import Tokenizer
    texts = random_texts(N_TEXTS)
    for path in sorted(TRAINED.glob("*.json")):
        if names and path.stem not in names:
            continue
        tokenizer = Tokenizer.from_file(str(path))
        contents = [token["content"] for token in json.loads(path.read_text())["added_tokens"]]
        mixed = with_spellings(texts, contents)
        write_golden(path.with_suffix(".txt"), mixed, *encode_json(tokenizer, mixed))
    if names:
        return
    for path in sorted(TRAINED.glob("*.model")):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        write_golden(path.with_suffix(".txt"), texts, [processor.encode(text) for text in texts])
    for name, pattern in [("cl100k", CL100K), ("o200k", O200K)]:
        encoding = tiktoken_encoding(TRAINED / "ranks.tiktoken", pattern)
        write_golden(TRAINED / f"ranks_{name}.txt", texts, [encoding.encode_ordinary(text) for text in texts])
    write_pre_tokenizers(texts)


LETTERS = "".join(
    f"{chr(first)}-{chr(last)}" if first != last else chr(first) for first, last in [
        (0x41, 0x5A), (0x61, 0x7A), (0xB5, 0xB5), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA), (0x1BC, 0x1BF), (0x1C4, 0x293),
        (0x295, 0x2AF), (0x370, 0x373), (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x38A),
        (0x38C, 0x38C), (0x38E, 0x3A1), (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F), (0x531, 0x556), (0x10A0, 0x10C5),
        (0x13A0, 0x13F5), (0x13F8, 0x13FD), (0x1C90, 0x1CBA), (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77),
        (0x1D79, 0x1D9A), (0x1E00, 0x1F15), (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57),
        (0x1F59, 0x1F59), (0x1F5B, 0x1F5B), (0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC),
        (0x1FBE, 0x1FBE), (0x1FC2, 0x1FC4), (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB), (0x1FE0, 0x1FEC),
        (0x1FF2, 0x1FF4), (0x1FF6, 0x1FFC), (0x2102, 0x2102), (0x2107, 0x2107), (0x210A, 0x2113), (0x2115, 0x2115),
        (0x2119, 0x211D), (0x2124, 0x2124), (0x2126, 0x2126), (0x2128, 0x2128), (0x212A, 0x212D), (0x212F, 0x2134),
        (0x2139, 0x2139), (0x213C, 0x213F), (0x2145, 0x2149), (0x214E, 0x214E), (0x2183, 0x2184), (0x2C00, 0x2C7B),
        (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE), (0x2CF2, 0x2CF3), (0xA640, 0xA66D), (0xA680, 0xA69B), (0xA722, 0xA76F),
        (0xA771, 0xA787), (0xA78B, 0xA78E), (0xAB70, 0xABBF), (0xFB00, 0xFB06), (0xFB13, 0xFB17), (0xFF21, 0xFF3A),
        (0xFF41, 0xFF5A), (0x10400, 0x1044F), (0x104B0, 0x104D3), (0x104D8, 0x104FB), (0x10C80, 0x10CB2), (0x10CC0, 0x10CF2),
        (0x118A0, 0x118DF), (0x1E900, 0x1E943)])
CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n"
        r"]+|\s+(?!\S)|\s+")
# Names of GGUF files -> patterns as the models' own files have them, each applied to the pieces of the one before.
PRE_TOKENIZERS = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2], "mpt": [GPT2], "olmo": [GPT2], "gpt-neox": [GPT2],
    "starcoder": [r"\p{N}", GPT2], "refact": [r"\p{N}", GPT2], "smollm": [r"\p{N}", GPT2], "command-r": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "dbrx": [LLAMA3], "chatglm-bpe": [LLAMA3], "deepseek-r1-qwen": [QWEN2], "qwen2": [QWEN2],
    "deepseek-llm": ["[\r\n]", rf"\s?[{LETTERS}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
                     CHINESE, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3],
    "gpt-4o": [O200K], "bloom": [BLOOM], "viking": [BLOOM, r"\p{N}"], "bailingmoe": [BAILING], "seed-coder": [SEED],
    "llama-bpe": [LLAMA3], "llama3": [LLAMA3], "tekken": [TEKKEN],
    "qwen35": [QWEN35], "minimax-m2": [O200K], "smaug-bpe": [LLAMA3], "glm4": [LLAMA3],
}
WHOLE_WORDS = {"llama-bpe", "llama3", "tekken"}


def write_pre_tokenizers(texts):
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    lines = []
    for name, patterns in PRE_TOKENIZERS.items():
        data = json.loads((TRAINED / "gpt2.json").read_text())
        data["model"]["ignore_merges"] = name in WHOLE_WORDS
        tokenizer = Tokenizer.from_str(json.dumps(data))
        if name in ("qwen2", "qwen35"):
            tokenizer.normalizer = normalizers.NFC()
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [byte_level(pre_tokenizers, False)])
        lines.append(f"{name} {hash_of(encode_json(tokenizer, texts)[0]):016x}")
    (TRAINED / "pre_tokenizers.txt").write_text("\n".join(lines) + "\n")


def published(folder):
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
    folder = Path(folder)
    texts = random_texts(N_TEXTS)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2/tokenizer.model"))
    write_golden(HERE / "published_llama2.txt", texts, [processor.encode(text) for text in texts])
    encoding = tiktoken_encoding(folder / "llama3/tokenizer.model", LLAMA3)
    write_golden(HERE / "published_llama3.txt", texts, [encoding.encode_ordinary(text) for text in texts])
    qwen2 = Tokenizer(models.BPE.from_file(str(folder / "qwen2/vocab.json"), str(folder / "qwen2/merges.txt")))
    qwen2.normalizer = normalizers.NFC()
    qwen2.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                                   byte_level(pre_tokenizers, False)])
    settings = json.loads((folder / "qwen2/tokenizer_config.json").read_text())
    special = [token["content"] for token in settings["added_tokens_decoder"].values()]
    qwen2.add_special_tokens([AddedToken(content, special=True, normalized=False) for content in special])
    mixed = with_spellings(texts, special)
    write_golden(HERE / "published_qwen2.txt", mixed, *encode_json(qwen2, mixed))


def corpus(folder):
    from sentencepiece import sentencepiece_model_pb2 as proto
    for path in sorted(TRAINED.glob("*.json")):
        data = json.loads(path.read_text())
        model = data["model"]
        if model["type"] == "BPE":
            merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"][:6]]
            special = {token["content"] for token in data["added_tokens"]} | {model.get("unk_token")}
            kept = special | {"".join(pair) for pair in merges} | {half for pair in merges for half in pair}
            is_byte_level = "ByteLevel" in path.read_text()
            tokens = [token for token in model["vocab"] if token in kept or (is_byte_level and len(token) == 1)]
            model["vocab"] = {token: number for number, token in enumerate(tokens)}
            model["merges"] = merges if path.stem != "llama2" else [" ".join(pair) for pair in merges]
        else:
            model["vocab"] = model["vocab"][:3] + [piece for piece in model["vocab"][3:] if len(piece[0]) < 3][:20]
        ids = model["vocab"] if model["type"] == "BPE" else {piece[0]: n for n, piece in enumerate(model["vocab"])}
        for number, token in enumerate(data["added_tokens"]):
            token["id"] = ids.get(token["content"], len(ids) + number)
        if data.get("post_processor"):
            by_content = {token["content"]: token["id"] for token in data["added_tokens"]}
            for content, entry in data["post_processor"]["special_tokens"].items():
                entry["ids"] = [by_content[content]]
        target = folder / "tokenizer_json" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    for path in sorted(TRAINED.glob("*.model")):
        model = proto.ModelProto()
        model.ParseFromString(path.read_bytes())
        pieces = [piece for piece in model.pieces if piece.type != 1] + [piece for piece in model.pieces if piece.type == 1][-20:]
        del model.pieces[:]
        model.pieces.extend(pieces)
        (folder / "sentencepiece" / f"trained_{path.name}").write_bytes(model.SerializeToString())


def main():
    TRAINED.mkdir(exist_ok=True)
    if sys.argv[1] == "train":
        lines = training_lines(sys.argv[2])
        train_tokenizers(lines, sys.argv[3:])
        if not sys.argv[3:]:
            train_sentencepiece(lines)
            train_ranks()
    elif sys.argv[1] == "golden":
        golden(sys.argv[2:])
    elif sys.argv[1] == "corpus":
        corpus(Path(sys.argv[2]))
    else:
        published(sys.argv[2])


main()
