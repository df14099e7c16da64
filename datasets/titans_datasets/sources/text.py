"""Text sets: books and articles for language modelling, stories and questions for evaluation."""

from collections.abc import Mapping
from typing import Literal

from titans_datasets.sources.entries import PublishedFile, TextInfo

__all__ = ["TEXTS"]

_GITHUB = "https://raw.githubusercontent.com"
_FOUNDRY = f"{_GITHUB}/mosaicml/llm-foundry/8c8dd48f72168c5d51e2f7b151595892a8fba43d/scripts/eval/local_data"
_WIKITEXT = f"{_GITHUB}/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2"
_BABI = f"{_GITHUB}/siddk/entity-network/b18fbb7c749e98192a77132af9e537e399ac24c7/tasks"

_BABI_FILES = {
    "en-10k/qa1_single-supporting-fact_train": "749ea9f7c99070feb2d88c975a254417a0dcc8274add4435ae5ae24c7afc7e9d",
    "en-10k/qa2_two-supporting-facts_train": "d4074c0c5d54f70ce2f538056ce2b6ef6a313da336da4245f1a24f1298e37ef3",
    "en-10k/qa4_two-arg-relations_train": "5d11b821d35234988ab907866aa7ce718e6b6d751acf63bdef52262afb59f12c",
    "en-10k/qa5_three-arg-relations_train": "2506910935b701bac64fc8b1d7ff12bd8d0f47ceefca183454282bec784c12a5",
    "en/qa1_single-supporting-fact_train": "c64ba9b1a49bbb111ffc4cd2ae4f129d25c012399dd7ade9679eea464b9afb05",
    "en/qa1_single-supporting-fact_test": "55acf66cef2f6d798e2aa1d056e1ec8f24e910ea9215b639450574321132959b",
    "en/qa2_two-supporting-facts_train": "a4978af5bc0dc30191810e7c9949aaa6eae939ed0f6beb9fcb5f4330c2a27860",
    "en/qa2_two-supporting-facts_test": "eff93fb9cd81ba02eb765772cf7cc269769ed44ec71cbbbc19cfb16ee5eba0f6",
    "en/qa3_three-supporting-facts_train": "a6e78019f36a02a7ed71fe6aaded0b563ff09c8deec392931801fcd9c6af4d60",
    "en/qa3_three-supporting-facts_test": "17795c977100baf8188f386522ae301b62d6c1a13efc01b3aea781e588b4d57f",
    "en/qa4_two-arg-relations_train": "c9370502d85fa382f32d1fea2111e817f81ae9e3e79eb2924a1a5392a90417fa",
    "en/qa4_two-arg-relations_test": "07f0ca18ddeea9eed4ba6d59e162adcb0ce44815721114b3540d92825509331e",
    "en/qa5_three-arg-relations_train": "086cd59c3ca9677bfac3d6a22ca5853c76a5c1fbae3159c7c4a6aef759a74ec0",
    "en/qa5_three-arg-relations_test": "ec825c1c8a76e63a31f0d7a7763cd63740e98332fa9bdf246a19068949bd5f97",
}
_WIKIPEDIA = "CC BY-SA 3.0 (text of Wikipedia)"
_MERITY = "Merity et al., Pointer Sentinel Mixture Models, ICLR 2017 (arXiv:1609.07843)"
_UNK = "Words are separated by spaces, rare ones are <unk>. Articles start with a line ' = Title = '."
_GAUNTLET = "From llm-foundry (Apache-2.0), reworded for evaluation; the fields differ from the original file."


def _plain(
    name: str,
    files: Mapping[str, tuple[str, str | None, str]],
    licence: str,
    citation: str,
    note: str,
    origin: str = "",
) -> TextInfo:
    """``files``: place below ``lm/``, address and checksum of each part."""
    return TextInfo(
        name=name,
        files={
            part: PublishedFile(name if len(files) == 1 else f"{name} ({part})", f"lm/{place}", url, checksum, origin)
            for part, (place, url, checksum) in files.items()
        },
        layout="plain",
        records=len(files),
        licence=licence,
        citation=citation,
        note=note,
    )


def _jsonl(
    name: str,
    place: str,
    url: str | None,
    sha256: str,
    records: int,
    *,
    part: Literal["train", "val", "test"],
    licence: str,
    citation: str,
    note: str = _GAUNTLET,
    origin: str = "",
) -> TextInfo:
    return TextInfo(
        name=name,
        files={part: PublishedFile(name, f"lm/{place}", url, f"sha256:{sha256}", origin)},
        layout="jsonl",
        records=records,
        licence=licence,
        citation=citation,
        note=note,
    )


TEXTS = (
    _jsonl(
        "gutenberg",
        "gutenberg/books.jsonl.gz",
        None,
        "9e17fce571ddd319d77e413c34a6d801c7f1c83ecb8b7b0566b6a5d8df0655e1",
        15,
        part="train",
        licence="public domain in the US (Project Gutenberg header and licence text removed)",
        citation="Project Gutenberg, texts of GITenberg",
        note="15 novels of 20 million characters: fields id (Project Gutenberg's number), title, text.",
        origin="books 76, 98, 145, 158, 345, 599, 766, 1023, 1342, 1400, 1661, 2554, 2600, 2701 and 28054 of "
        "https://www.gutenberg.org/ebooks, as published by https://github.com/GITenberg, without header and licence",
    ),
    _plain(
        "tinyshakespeare",
        {
            "train": (
                "tinyshakespeare/input.txt",
                f"{_GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            )
        },
        "public domain text; MIT (the repository that publishes it)",
        "Karpathy, char-rnn (2015)",
        "1.1 million characters, 40,000 lines. No official split.",
    ),
    _plain(
        "wikitext2",
        {
            "val": (
                "wikitext2/valid.txt",
                f"{_WIKITEXT}/valid.txt",
                "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            "test": (
                "wikitext2/test.txt",
                f"{_WIKITEXT}/test.txt",
                "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        },
        _WIKIPEDIA,
        _MERITY,
        f"{_UNK} Both parts are the same as in WikiText-103. The training part is the separate set wikitext2_train.",
    ),
    _plain(
        "wikitext2_train",
        {
            "train": (
                "wikitext2/train.txt",
                f"{_WIKITEXT}/train.txt",
                "git:2d84b35af79e411d73ea7cae83c73964c6ac83b4",
            )
        },
        _WIKIPEDIA,
        _MERITY,
        _UNK,
    ),
    _plain(
        "wikitext2_raw",
        {
            "test": (
                "wikitext2/test_raw.txt",
                None,
                "sha256:602e375804170ea5f5f6877e40c03b820991b2c0bdf12567b7366c9a9638c905",
            )
        },
        _WIKIPEDIA,
        _MERITY,
        "The test part with its rare words: raw words aligned to the lines of wikitext2's test (241,211 words, 1 : 1).",
        origin="the test part of wikitext-2-raw-v1 (https://huggingface.co/datasets/Salesforce/wikitext) and that of "
        "the set wikitext2",
    ),
    _plain(
        "babi",
        {part: (f"babi/{part}.txt", f"{_BABI}/{part}.txt", f"sha256:{sha256}") for part, sha256 in _BABI_FILES.items()},
        "CC BY 3.0",
        "Weston et al., Towards AI-complete question answering (arXiv:1502.05698), tasks v1.2",
        "Tasks 1 to 5, in English: en has 1,000 training and 1,000 test questions; en-10k has 10,000 training "
        "questions (without task 3).",
    ),
    _jsonl(
        "lambada_openai",
        "commonsense/lambada_openai.jsonl",
        f"{_FOUNDRY}/language_understanding/lambada_openai.jsonl",
        "411bfbe5b9054346b6a19299c0242670adbefb9162efd958593cbc0290b8c9dc",
        5153,
        part="test",
        licence="CC BY 4.0 (LAMBADA); MIT (OpenAI's processing)",
        citation="Paperno et al., The LAMBADA dataset, ACL 2016 (arXiv:1606.06031)",
    ),
    _jsonl(
        "piqa",
        "commonsense/piqa.jsonl",
        f"{_FOUNDRY}/commonsense_reasoning/piqa.jsonl",
        "d2870e73aec5154df3faf259b7700876e11608eebdf69e9d6667435673dbe4e0",
        1838,
        part="val",
        licence="AFL 3.0",
        citation="Bisk et al., PIQA, AAAI 2020 (arXiv:1911.11641)",
    ),
    _jsonl(
        "hellaswag_val_1000",
        "commonsense/hellaswag_val_1000.jsonl",
        f"{_GITHUB}/RubriksCube/rubriks_cube/45e617d6ca9e5a158a280f0da0f7a44f7c8dbb8c/data/hellaswag.jsonl",
        "79b87117cffba9878961284f233797c5ebeba4193cb48a93eabc4a5a1156cc45",
        1000,
        part="val",
        licence="MIT",
        citation="Zellers et al., HellaSwag, ACL 2019 (arXiv:1905.07830)",
        note="A sample of 1,000 of the 10,042 validation items, with the fields of the original: a score on it is not "
        "the published one.",
    ),
    _jsonl(
        "winogrande",
        "commonsense/winogrande.jsonl",
        f"{_FOUNDRY}/language_understanding/winogrande.jsonl",
        "ea1592526f3bfdd0948ed3acb1b4dfa3f83d23698917118688ee1df7f8d4b8d7",
        1267,
        part="val",
        licence="CC BY (data), Apache-2.0 (code)",
        citation="Sakaguchi et al., WinoGrande, AAAI 2020 (arXiv:1907.10641)",
    ),
    _jsonl(
        "arc_easy",
        "commonsense/arc_easy.jsonl",
        f"{_FOUNDRY}/world_knowledge/arc_easy.jsonl",
        "d2d12e59543acf9a5ef6079634a72b30215e36c2fd4236fff3bc855d287b87f5",
        2376,
        part="test",
        licence="CC BY-SA 4.0",
        citation="Clark et al., AI2 Reasoning Challenge (arXiv:1803.05457)",
    ),
    _jsonl(
        "arc_challenge",
        "commonsense/arc_challenge.jsonl",
        f"{_FOUNDRY}/world_knowledge/arc_challenge.jsonl",
        "1ae3aeedf1951d881cbd5c2e3a31e78a1993d251479afbe4cb413b6707244636",
        1172,
        part="test",
        licence="CC BY-SA 4.0",
        citation="Clark et al., AI2 Reasoning Challenge (arXiv:1803.05457)",
    ),
    _jsonl(
        "siqa",
        "commonsense/siqa.jsonl",
        None,
        "17c8ece78c7b3f61cb21f53ad635940620c941542799580db06df5e47bf5e77e",
        1954,
        part="val",
        licence="CC BY 4.0",
        citation="Sap et al., SocialIQA, EMNLP 2019 (arXiv:1904.09728)",
        note='Fields context, question, answerA to answerC, label ("1" to "3"), extracted from the prompts of '
        "AGI-Edgerunners/LLM-Adapters (Apache-2.0) and checked against llm-foundry's. This file is not published.",
        origin="dataset/social_i_qa/test.json of https://github.com/AGI-Edgerunners/LLM-Adapters, which are the "
        "questions of dev.jsonl and the labels of dev-labels.lst in "
        "https://storage.googleapis.com/ai2-mosaic/public/socialiqa/socialiqa-train-dev.zip",
    ),
    _jsonl(
        "boolq",
        "commonsense/boolq.jsonl",
        f"{_FOUNDRY}/reading_comprehension/boolq.jsonl",
        "454ff101e614370bb1807fe7ebbda6fdb57e794b9662cc1ccae211bf1ff626c8",
        3270,
        part="val",
        licence="CC BY-SA 3.0",
        citation="Clark et al., BoolQ, NAACL 2019 (arXiv:1905.10044)",
    ),
)
