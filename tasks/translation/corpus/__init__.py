"""A corpus of many languages and English: from sources to a prepared folder.

    sources                          what is done                      what comes of it
    files.py       pairs of lines    languages.py   codes              prepared.py    the folder
    catalogues.py  gettext           cleaning.py    what is kept       vocabulary.py  sentencepiece,
    mediawiki.py   i18n files        split.py       train or test                     ids
    datasets.py    TFDS              report.py      what was dropped

Every source yields Pairs (pair.py): a language's code, a sentence, its English, and where it was
found. lingpipe.tools.build_corpus and lingpipe.tools.train_vocabulary run all of these steps.
"""
