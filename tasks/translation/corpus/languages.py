"""Languages: their codes and names, and the languages that variants of the codes belong to.

LISTED has the languages, apart from English, that a public translator offered in 2019. They are
about those of the GPipe paper's corpus of 102 languages. All others with a two-letter code of ISO
639-1 are known too. A code of a region, a script or a form of address ('pt-br', 'sr-el',
'de-formal') belongs to the language before its first hyphen: regions and scripts are merged into
the language, and formal variants are dropped, since they repeat nearly every sentence.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def _table(text: str) -> dict[str, str]:
    rows = [row.strip().partition(' ') for row in text.replace('\n', ' ').split(',')]
    return {code: name for code, _, name in rows}


LISTED = _table('''
    af Afrikaans, am Amharic, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali,
    bs Bosnian, ca Catalan, ceb Cebuano, co Corsican, cs Czech, cy Welsh, da Danish, de German,
    el Greek, eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French,
    fy Western Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gu Gujarati, ha Hausa,
    haw Hawaiian, he Hebrew, hi Hindi, hmn Hmong, hr Croatian, ht Haitian, hu Hungarian,
    hy Armenian, id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese, jv Javanese,
    ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, ku Kurdish, ky Kyrgyz, la Latin,
    lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori, mk Macedonian,
    ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, ne Nepali, nl Dutch,
    no Norwegian, ny Chichewa, pa Punjabi, pl Polish, ps Pashto, pt Portuguese, ro Romanian,
    ru Russian, sd Sindhi, si Sinhala, sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali,
    sq Albanian, sr Serbian, st Southern Sotho, su Sundanese, sv Swedish, sw Swahili, ta Tamil,
    te Telugu, tg Tajik, th Thai, tl Tagalog, tr Turkish, uk Ukrainian, ur Urdu, uz Uzbek,
    vi Vietnamese, xh Xhosa, yi Yiddish, yo Yoruba, zh Chinese, zu Zulu''')
OTHERS = _table('''
    aa Afar, ab Abkhazian, ak Akan, an Aragonese, as Assamese, ast Asturian, av Avaric, ay Aymara,
    ba Bashkir, bi Bislama, bm Bambara, bo Tibetan, br Breton, ce Chechen, ch Chamorro, cr Cree,
    cv Chuvash, dv Divehi, dz Dzongkha, ee Ewe, en English, ff Fulah, fj Fijian, fo Faroese,
    gn Guarani, gv Manx, ho Hiri Motu, hz Herero, ia Interlingua, ie Interlingue, ii Sichuan Yi,
    ik Inupiaq, io Ido, iu Inuktitut, kg Kongo, ki Kikuyu, kj Kuanyama, kl Kalaallisut, kr Kanuri,
    ks Kashmiri, kv Komi, kw Cornish, lg Ganda, li Limburgish, ln Lingala, lu Luba-Katanga,
    mh Marshallese, na Nauru, nd North Ndebele, ng Ndonga, nn Norwegian Nynorsk, nr South Ndebele,
    nv Navajo, oc Occitan, oj Ojibwa, om Oromo, or Odia, os Ossetian, pi Pali, qu Quechua,
    rm Romansh, rn Rundi, rw Kinyarwanda, sa Sanskrit, sc Sardinian, se Northern Sami, sg Sango,
    ss Swati, ti Tigrinya, tk Turkmen, tn Tswana, to Tongan, ts Tsonga, tt Tatar, tw Twi,
    ty Tahitian, ug Uyghur, ve Venda, vo Volapuk, wa Walloon, wo Wolof, za Zhuang''')
KNOWN = {**LISTED, **OTHERS}

# Other codes of a language: outdated, longer, or those of its commonest written form.
ALIASES = {'nb': 'no', 'iw': 'he', 'in': 'id', 'ji': 'yi', 'jw': 'jv', 'fil': 'tl', 'mo': 'ro',
           'cmn': 'zh', 'mww': 'hmn', 'zlm': 'ms', 'zsm': 'ms'}
# Codes that name another language than the part before the hyphen does, or a spelling that readers
# would not mix with it.
OTHER_LANGUAGE = frozenset({'be-tarask', 'be-x-old', 'nds-nl', 'map-bms', 'roa-tara', 'cbk-zam',
                            'zh-yue', 'zh-classical', 'zh-min-nan'})
FORMS_OF_ADDRESS = frozenset({'formal', 'informal'})


def language_of(code: str) -> tuple[str | None, str]:
    """Returns the language of a source's code, and why not if it is None.

    'pt_BR' gives ('pt', ''), and 'de-formal' gives (None, 'formal variant').
    """
    code = re.sub(r'[_@]', '-', code.strip().lower())
    first, _, rest = code.partition('-')
    if FORMS_OF_ADDRESS & set(rest.split('-')):
        return None, 'formal variant'
    if code in OTHER_LANGUAGE:
        return None, 'unknown language'
    first = ALIASES.get(first, first)
    if first == 'en':
        return None, 'English as a foreign language'
    return (first, '') if first in KNOWN else (None, 'unknown language')


def checked(codes: Iterable[str], known: Iterable[str] = KNOWN,
            whose: str = 'known') -> tuple[str, ...]:
    """Returns the languages of the codes, in order, each once.

    Args:
      codes: the codes that a user wrote.
      known: the languages that there are.
      whose: describes the known languages in the error.

    Raises:
      ValueError: a code is not known; the error names the nearest.
    """
    known, languages = set(known), []
    for code in codes:
        language = code if code in known else language_of(code)[0]
        if language is None or language not in known:
            raise ValueError(f'language {code!r} is not {whose}; {_nearest(code, known)}')
        languages.append(language)
    return tuple(dict.fromkeys(languages))


def _nearest(code: str, known: set[str]) -> str:
    """Returns a sentence that names the codes a misspelt one may stand for."""
    names = {KNOWN[one].lower(): one for one in known if one in KNOWN}
    if code.lower() in names:
        return f'its code is {names[code.lower()]!r}.'

    near = [names.get(one, one)
            for one in difflib.get_close_matches(code.lower(), [*sorted(known), *names], 5, 0.4)]
    same = sorted(one for one in known if one[:1] == code.lower()[:1])
    shown = list(dict.fromkeys(near)) or same or sorted(known)[:8]
    return ('the nearest are '
            f'{", ".join(f"{one} ({KNOWN[one]})" if one in KNOWN else one for one in shown)}. '
            'Use one of them.')
