"""The digits of base 62, of which names drawn at random are made."""
cdef extern from * nogil:
    """
    #define GNATS_BASE62 "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    """
    const char *DIGITS "GNATS_BASE62"
    enum:
        BASE "((int)sizeof(GNATS_BASE62) - 1)"
