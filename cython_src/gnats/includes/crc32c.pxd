"""CRC-32C (Castagnoli), by the processor's instruction where there is one."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    static uint32_t gnats_crc_table[8][256];
    static int gnats_crc_ready;

    static void gnats_crc_prepare(int wide)
    {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
            gnats_crc_table[0][i] = crc;
        }
        for (int t = 1; t < 8; t++)
            for (int i = 0; i < 256; i++)
                gnats_crc_table[t][i] =
                    gnats_crc_table[t - 1][i] >> 8 ^ gnats_crc_table[0][gnats_crc_table[t - 1][i] & 255];
        gnats_crc_ready = 1;
    #if defined(__x86_64__)
        __builtin_cpu_init();
        if (wide && __builtin_cpu_supports("sse4.2"))
            gnats_crc_ready = 2;
    #endif
    }

    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t gnats_crc_wide(uint64_t crc, const unsigned char *p, size_t n)
    {
        for (; n >= 8; n -= 8, p += 8) {
            uint64_t v;
            memcpy(&v, p, 8);
            crc = __builtin_ia32_crc32di(crc, v);
        }
        for (; n; n--, p++)
            crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
        return (uint32_t)crc;
    }
    #endif

    static uint32_t gnats_crc32c(const void *data, size_t n)
    {
        const unsigned char *p = data;
        uint32_t crc = 0xffffffff;
    #if defined(__x86_64__)
        if (gnats_crc_ready == 2)
            return ~gnats_crc_wide(crc, p, n);
    #endif
        for (; n >= 8; n -= 8, p += 8) {
            uint32_t lo, hi;
            memcpy(&lo, p, 4);
            memcpy(&hi, p + 4, 4);
            lo ^= crc;
            crc = gnats_crc_table[7][lo & 255] ^ gnats_crc_table[6][lo >> 8 & 255]
                ^ gnats_crc_table[5][lo >> 16 & 255] ^ gnats_crc_table[4][lo >> 24]
                ^ gnats_crc_table[3][hi & 255] ^ gnats_crc_table[2][hi >> 8 & 255]
                ^ gnats_crc_table[1][hi >> 16 & 255] ^ gnats_crc_table[0][hi >> 24];
        }
        for (; n; n--, p++)
            crc = crc >> 8 ^ gnats_crc_table[0][(crc ^ *p) & 255];
        return ~crc;
    }
    """
    void crc32c_prepare "gnats_crc_prepare"(int wide)    # call it before the first crc32c, in each module
    uint32_t crc32c "gnats_crc32c"(const void *data, size_t n)
    int crc32c_ready "gnats_crc_ready"                   # 1: by table, 2: by instruction
