"""Translation sets of tensorflow-datasets.

Examples are ted_multi_translate, wmt14_translate/de-en, para_crawl/ende, flores/neen and opus. opus
has no set of its own for a pair of languages: 'opus/de-en/EMEA+KDE4' makes one of its parts.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lingpipe.input import TFDSInput
from lingpipe.input.datasets import import_tfds
from lingpipe.tasks.translation.corpus.pair import Pair, Place


def dataset_pairs(name: str, split: str = 'train', data_dir: str | None = None,
                  download: bool = False) -> Iterator[Pair]:
    """Yields the pairs of a set that has English on one side.

    Our own split into train and test is made later, of all sources together.

    Args:
      name: as tensorflow-datasets calls the set, or 'opus/LANGUAGE-en/PART+PART'.
      split: the split of the set: 'train', 'train+validation', 'train[:1%]'.
      data_dir: where sets are prepared; None is ~/tensorflow_datasets.
      download: whether the set is downloaded if it is not prepared.

    Raises:
      ValueError: there is no such set, it is not prepared (the error has the command), or it does
        not translate to English.
    """
    data = _TranslationSet.Params(name=name, split=split, data_dir=data_dir, download=download,
                                  batch_size=1).instantiate()
    feature = data.translation_feature()
    source = f'tfds {name}'
    for number, example in enumerate(data.examples(), 1):
        place = Place(source, name, number)
        entry = example[feature] if feature else example
        if 'translation' in entry:
            # The example has any number of languages: sorted codes, and their sentences.
            texts = dict(zip((_text(code) for code in entry['language']),
                             map(_text, entry['translation']), strict=True))
        else:
            texts = {code: _text(text) for code, text in entry.items()}

        english = texts.pop('en', '')
        for code, text in texts.items() if english else ():
            yield Pair(code, text, english, place)


class _TranslationSet(TFDSInput):
    """Finds the builder of a set, with TFDSInput's errors."""

    @property
    def builder(self) -> Any:  # type: ignore[override]
        name = self.params.name
        return (_opus(name, self.params.data_dir, self.params.download)
                if name.startswith('opus/') else super().builder)

    def translation_feature(self) -> str:
        """Returns the name of the feature with the sentences; '' if the examples have them."""
        tfds = import_tfds()
        features = self.builder.info.features
        kinds = (tfds.features.Translation, tfds.features.TranslationVariableLanguages)
        named = dict(features.items()) if hasattr(features, 'items') else {}
        for name, feature in {'': features, **named}.items():
            if isinstance(feature, kinds):
                if 'en' not in feature.languages:
                    raise ValueError(
                        f'{self.params.name} translates {", ".join(feature.languages)}, and no '
                        'English; name a set that does.')
                return name
        raise ValueError(f'{self.params.name} holds {", ".join(named) or features}, and no '
                         'translations; name a set such as ted_multi_translate, '
                         'wmt14_translate/de-en, para_crawl/ende, flores/neen, or '
                         'opus/de-en/EMEA.')

    def examples(self) -> Iterator[dict[str, Any]]:
        """Yields all examples, as NumPy."""
        tfds = import_tfds()
        p, builder = self.params, self.builder
        try:
            examples = builder.as_dataset(split=p.split, shuffle_files=False)
        except AssertionError as error:   # tensorflow-datasets raises it if there are no files
            raise ValueError(f'{p.name} is not prepared in {builder.data_dir}. Where there is a '
                             'network, run this with --download '
                             f'--data_dir={p.data_dir or "~/tensorflow_datasets"}, and copy the '
                             'directory to machines without one.') from error
        except (KeyError, ValueError) as error:
            raise ValueError(f'{p.name} has no split {p.split!r}; it has '
                             f'{", ".join(sorted(builder.info.splits))}.') from error
        yield from tfds.as_numpy(examples)


def _opus(name: str, data_dir: str | None, download: bool) -> Any:
    """Returns the builder of a part, as 'opus/de-en/EMEA+KDE4'."""
    tfds = import_tfds()
    from tensorflow_datasets.datasets.opus import opus_dataset_builder as opus

    _, _, rest = name.partition('/')
    pair, _, parts = rest.partition('/')
    source, _, target = pair.partition('-')
    if not source or not target or not parts:
        raise ValueError(f"{name!r} does not say which part of opus; write 'opus/de-en/EMEA', with "
                         "the parts joined by +: " f'{", ".join(sorted(opus.DATASET_MAP))}.')

    pair_of_codes = tuple(sorted((source, target)))
    for part in parts.split('+'):
        if part not in opus.DATASET_MAP:
            raise ValueError(f'opus has no part {part!r}; it has '
                             f'{", ".join(sorted(opus.DATASET_MAP))}.')
        if pair_of_codes not in opus.DATASET_MAP[part].language_pairs:
            codes = sorted({code for codes in opus.DATASET_MAP[part].language_pairs
                            for code in codes})
            raise ValueError(f'{part} of opus does not translate {source} to {target}; it has '
                             f'{", ".join(codes)}.')

    config = opus.OpusConfig(version=tfds.core.Version('0.1.0'), language_pair=pair_of_codes,
                             subsets=parts.split('+'))
    builder = opus.Builder(config=config, data_dir=data_dir)
    if download:
        builder.download_and_prepare()
    return builder


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
