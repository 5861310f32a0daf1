#!/usr/bin/env python3
"""Trains small vocabularies with their own libraries and records hashes of their ids for random strings, for vocab_test.cc.

usage: make_tokenizers.py FOLDER [COUNT] [SEED]
    python3 -m venv V && V/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0
    V/bin/python tests/text/make_tokenizers.py tests/text/tokenizers        the files in the repository
    V/bin/python tests/text/make_tokenizers.py /tmp/t 10000 7 && FORGE_TOKENIZERS=/tmp/t loader_tok_test "[vocab]"

Writes NAME.gguf and cases.txt into FOLDER. C++ has the same generator of strings and reads its pools from the head of
cases.txt. Only a hash of the ids of each block of 250 strings is stored, so that many strings need little space.
sentencepiece 0.2.3 sums scores in 32 bits along the whole text, and so does forge: rounding decides between segmentations of
equal score (0.2.1 compared the sums in 64 bits and stored them in 32; tokenizers uses 64 bits and takes the first).
"""
import io, json, os, sys, unicodedata
import gguf, sentencepiece, tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from splitmix import SplitMix

BLOCK = 250
WORDS = ("the of and Hello world I'm we'll DON'T he'd tokens camelCase HTMLParser naïve Äpfel Straße İstanbul DŽ ǅ "
         "日本語 東京都 한국어 नमस्ते สวัสดี مرحبا привет Ελλάδα ½ ² Ⅷ ﬁne ﷺ 🦙 👩‍👩‍👧 e\u0301 A\u030a 12345 3.14 <s> </s> [MASK] ＡＢ１").split()
# Characters whose category is the same in all versions of Unicode: the libraries' tables are older or newer than forge's.
OLD = [chr(c) for c in range(0x80, 0x1FFFF) if unicodedata.ucd_3_2_0.category(chr(c)) == unicodedata.category(chr(c)) not in ("Cn", "Cs")]
OLD = OLD[::211] + ["\u0378", "\ue000", "\ufeff", "\ufffd", "\u200b", "\u2028", "\u0085"]
# (maximum number at once, strings) or (maximum number at once, first code point, last code point)
POOLS = [(2, WORDS), (1, [" "]), (3, [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2003"]), (4, 0x20, 0x7E), (2, 0xA1, 0x24F),
         (3, 0x370, 0x52F), (2, 0x4E00, 0x4E40), (2, 0x3041, 0x30FF), (2, 0xAC00, 0xAC40), (2, 0x904, 0x939), (2, 0x300, 0x36F),
         (4, list("0123456789")), (3, list("!?.,;:'\"()[]{}<>|/\\-_=+*&^%$#@~`‘’“”…。，、！")), (2, 0x1F300, 0x1F64F), (2, 0x621, 0x64A),
         (1, 0x1, 0x1F), (2, OLD), (1, 0x20000, 0x2A000)]


class Strings(SplitMix):
    """The string generator. Must equal Strings in vocab_test.cc."""

    def next(self, pools=POOLS):
        out = ""
        for _ in range(self.below(16)):
            pool = pools[self.below(len(pools))]
            for _ in range(1 + self.below(pool[0])):
                if len(pool) == 2: out += pool[1][self.below(len(pool[1]))]
                else:
                    code = pool[1] + self.below(pool[2] - pool[1] + 1)
                    out += "?" if 0xD800 <= code < 0xE000 else chr(code)
        return out


def digest(lists):
    """FNV-1a over the ids; each list ends with -1."""
    h = 0xCBF29CE484222325
    for ids in lists:
        for i in [*ids, -1]: h = (h ^ (i & 0xFFFFFFFF)) * 0x100000001B3 % (1 << 64)
    return f"{h:016x}"


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = """41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481
48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45
1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC
1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183
2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17
FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"""
CASED = "[" + "".join("-".join(chr(int(code, 16)) for code in part.split("-")) for part in CASED.split()) + "]+"


def cased(but=""):
    """GPT-4o's expression for words; characters of `but` are excluded from its letters."""
    upper, lower = (r"[" + letters + but + "]" for letters in (r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"))
    return "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{upper}{a}{lower}{b}{CONTRACTIONS}?" for a, b in ("*+", "+*"))


# tokenizer.ggml.pre -> (expressions in the order of application, as in the models' tokenizer.json; ignore_merges)
SPLITS = {
    "gpt-2": ([], False),
    "smollm": ([r"\p{N}"], False),
    "llama-bpe": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES], True),
    "qwen2": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES], False),
    "bloom": ([" ?[^(\\s|[.,!?…。，、।۔،])]+"], False),
    "viking": ([" ?[^(\\s|[.,!?…。，、।۔،])]+", r"\p{N}"], False),
    "deepseek-llm": (["[\r\n]", "\\s?" + CASED, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"], False),
    "deepseek-coder": (["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"], False),
    "deepseek-v3": (["\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                     r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + SPACES], False),
    "kimi-k2": ([r"\p{Han}+|" + cased("&&[^\\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES], False),
    "tiny_aya": ([r"\d{1,3}(?=(?:\d{3})*\b)", cased() + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES], False),
    "granite-embed-multi-97m": ([cased() + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES], True),
    "youtu": (["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\u3001-\u303f\ufe30-\ufe4f]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+", cased() + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES], True),
    "superbpe": ([r"\p{N}+", r"(?=(\d{3})+(?!\d))"], False),
    "jais-2": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" +
                r"".join(r"\s{%d}(?!\S)|" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"\s{1,2}(?!\S)|\s{1}"], False),
    "exaone-moe": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"], False),
    "spark2_5": (["\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                  r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+""", "\\p{N}"], False),
    "chameleon": (["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]"], False),
}
REGEX_AFTER = {"gpt-2", "smollm", "chameleon"}  # pre-tokenizers that end with GPT-2's own expression


def byte_level(folder, corpus):
    """One vocabulary for all pre-tokenizers. It is trained on whole lines, so that its tokens cross every word border."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("[^\n]+|\n+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=["<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["merges"]]
    save(folder, "bpe", "gpt2", tokens, [3 if t in ("<s>", "</s>") else 1 for t in tokens], merges=merges)
    for pre, (patterns, ignore) in SPLITS.items():
        one = tokenizers.Tokenizer(models.BPE(state["vocab"], [tuple(m.split(" ", 1)) for m in merges], ignore_merges=ignore))
        one.add_special_tokens(["<s>", "</s>"])
        steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
        one.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre in REGEX_AFTER)])
        yield f"bpe {pre} special", lambda text: one.encode(text, add_special_tokens=False).ids


def fields(message):
    """Number and value of each length-delimited field of a protocol buffer."""
    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128: return value, at
    at = 0
    while at < len(message):
        key, at = varint(at)
        if key & 7 == 2:
            size, at = varint(at)
            yield key >> 3, message[at:at + size]
            at += size
        elif key & 7 == 0: _, at = varint(at)
        else: at += 4 if key & 7 == 5 else 8


def sentence_piece(folder, corpus, name, model, rules=None, **options):
    out = io.BytesIO()
    options = {"vocab_size": 700, "byte_fallback": False, "hard_vocab_limit": False, "character_coverage": 0.99, "num_threads": 1, "minloglevel": 2, **options}
    if rules:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w") as file:
            for source, target in rules.items(): file.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
        options["normalization_rule_tsv"] = path
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=out, **options)
    if rules: os.remove(path)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    n = range(sp.get_piece_size())
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 1 for i in n]
    spec = dict(fields(dict(fields(out.getvalue()))[3]))
    save(folder, name, model, [sp.id_to_piece(i) for i in n], types, scores=[sp.get_score(i) for i in n], charsmap=spec.get(2, b""),
         merge_spaces=options.get("remove_extra_whitespaces", True), unknown=sp.unk_id())
    yield f"{name} - plain", lambda text: sp.encode(text)


def word_piece(folder, corpus, name, lowercase):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=900, special_tokens=special, show_progress=False))
    vocab = tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    spelled = [t if t in special else t[2:] if t.startswith("##") else "\u2581" + t for t in tokens]
    save(folder, name, "bert", spelled, [3 if t in special else 1 for t in tokens], unknown=1, lowercase=lowercase)
    yield f"{name} - special", lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def save(folder, name, model, tokens, types, scores=None, merges=None, charsmap=b"", merge_spaces=None, unknown=None, lowercase=None):
    w = gguf.GGUFWriter(os.path.join(folder, name + ".gguf"), "none")
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores: w.add_token_scores(scores)
    if merges: w.add_token_merges(merges)
    if charsmap: w.add_precompiled_charsmap(charsmap)
    if unknown is not None: w.add_unk_token_id(unknown)
    if merge_spaces is not None:
        w.add_remove_extra_whitespaces(merge_spaces)
        w.add_add_space_prefix(True)
    if lowercase is not None: w.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def main():
    folder, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    os.makedirs(folder, exist_ok=True)
    maker = Strings(seed + 1000)
    corpus = [maker.next(POOLS[:-3]).replace("\n", " ") for _ in range(3000)]
    common = [maker.next(POOLS[:4] + POOLS[7:8] + POOLS[11:13] + POOLS[14:15]).replace("\n", " ") for _ in range(4000)]
    rules = {"ﬁ": "fi", "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u2003": " ", "e\u0301": "é", "A\u030a": "Å", "ﷺ": "صلى الله عليه وسلم",
             "\u200d": "", "½": "1/2", "…": "...", "İ": "I\u0307", **{chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)}}
    if "--nfkc" in sys.argv: rules = None  # sentencepiece's default rules, 240 kB
    kinds = [byte_level(folder, corpus),
             sentence_piece(folder, common, "spm", "llama", model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=900,
                            remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True),
             sentence_piece(folder, common, "unigram", "t5", model_type="unigram", rules=rules),
             sentence_piece(folder, common, "unigram-bytes", "t5", model_type="unigram", byte_fallback=True, vocab_size=900, normalization_rule_name="identity",
                            remove_extra_whitespaces=False, split_by_whitespace=False),
             word_piece(folder, common, "wordpiece", True), word_piece(folder, common, "wordpiece-cased", False)]
    with open(os.path.join(folder, "cases.txt"), "w") as out:
        print(f"# Made by make_tokenizers.py with tokenizers {tokenizers.__version__} and sentencepiece {sentencepiece.__version__}.", file=out)
        print(f"strings {count} {seed}", file=out)
        for pool in POOLS:
            if len(pool) == 2: print("texts", pool[0], *(text.encode().hex() for text in pool[1]), file=out)
            else: print("range", *pool, file=out)
        for kind in kinds:
            for name, encode in kind:
                strings = Strings(seed)
                blocks = [digest(encode(strings.next()) for _ in range(min(BLOCK, count - at))) for at in range(0, count, BLOCK)]
                print("case", name, *blocks, file=out)


main()
