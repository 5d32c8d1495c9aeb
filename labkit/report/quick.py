"""nbformat, loaded in a third of the time.

jsonschema, with which nbformat validates, compiles a grammar of international web addresses (rfc3987_syntax) as it is
loaded: two seconds, for the format "iri", which no notebook's schema names. It does without where that package is
missing (https://python-jsonschema.readthedocs.io/en/stable/validate/#validating-formats), so here it is.
"""

import sys

__all__ = ["nbformat"]

_GRAMMAR = "rfc3987_syntax"
_here = sys.modules.get(_GRAMMAR)
sys.modules[_GRAMMAR] = None  # type: ignore[assignment]  # Python's own sign for a module that cannot be imported
try:
    import nbformat
finally:
    if _here is None:
        del sys.modules[_GRAMMAR]
    else:
        sys.modules[_GRAMMAR] = _here
