/* HighwayHash-64 (Alakuijala, Cox, Wassenberg: Fast keyed hash/pseudo-random function using SIMD multiply and
 * permute) and the SHA-256 (FIPS 180-4) that its keys are made with. A state is 16 lanes: v0, v1, mul0, mul1. */
#ifndef GNATS_HIGHWAY_H
#define GNATS_HIGHWAY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the files of a store are little endian, and so must be the machine"
#endif

#define HH_INLINE static inline __attribute__((always_inline))

static const uint64_t hh_initial[8] = {
    0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344, 0x243f6a8885a308d3,
    0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c, 0x452821e638d01377,
};

static void hh_key(uint64_t *lanes, const uint8_t *key)
{
    uint64_t k[4];
    memcpy(k, key, sizeof k);
    for (int i = 0; i < 4; i++) {
        lanes[i] = hh_initial[i] ^ k[i];
        lanes[4 + i] = hh_initial[4 + i] ^ (k[i] >> 32 | k[i] << 32);
        lanes[8 + i] = hh_initial[i];
        lanes[12 + i] = hh_initial[4 + i];
    }
}

/* The last packet, of 1 to 31 bytes: whole words in front, the rest where its length decides. */
HH_INLINE void hh_last_packet(uint8_t *packet, const uint8_t *p, size_t n)
{
    size_t odd = n & 3;
    memset(packet, 0, 32);
    memcpy(packet, p, n - odd);
    if (n & 16) {
        memcpy(packet + 28, p + n - 4, 4);
    } else if (odd) {
        const uint8_t *rest = p + n - odd;
        packet[16] = rest[0];
        packet[17] = rest[odd >> 1];
        packet[18] = rest[odd - 1];
    }
}

/* ---- any processor ---- */

HH_INLINE void hh_zipper(uint64_t lo, uint64_t hi, uint64_t *add_lo, uint64_t *add_hi)
{
    *add_lo += ((lo & 0xff000000) | (hi & 0xff00000000)) >> 24
        | ((lo & 0xff0000000000) | (hi & 0xff000000000000)) >> 16
        | (lo & 0xff0000) | (lo & 0xff00) << 32 | (hi & 0xff00000000000000) >> 8 | lo << 56;
    *add_hi += ((hi & 0xff000000) | (lo & 0xff00000000)) >> 24
        | (hi & 0xff0000) | (hi & 0xff0000000000) >> 16 | (hi & 0xff00) << 24
        | (lo & 0xff000000000000) >> 8 | (hi & 0xff) << 48 | (lo & 0xff00000000000000);
}

HH_INLINE void hh_mix(uint64_t *s, const uint64_t *packet)
{
    uint64_t *v0 = s, *v1 = s + 4, *mul0 = s + 8, *mul1 = s + 12;
    for (int i = 0; i < 4; i++) {
        v1[i] += mul0[i] + packet[i];
        mul0[i] ^= (v1[i] & 0xffffffff) * (v0[i] >> 32);
        v0[i] += mul1[i];
        mul1[i] ^= (v0[i] & 0xffffffff) * (v1[i] >> 32);
    }
    hh_zipper(v1[0], v1[1], &v0[0], &v0[1]);
    hh_zipper(v1[2], v1[3], &v0[2], &v0[3]);
    hh_zipper(v0[0], v0[1], &v1[0], &v1[1]);
    hh_zipper(v0[2], v0[3], &v1[2], &v1[3]);
}

HH_INLINE uint64_t hh_swap_halves(uint64_t v) { return v >> 32 | v << 32; }

static void hh_packets_any(uint64_t *s, const uint8_t *p, size_t n)
{
    uint64_t packet[4];
    for (; n >= 32; n -= 32, p += 32) {
        memcpy(packet, p, 32);
        hh_mix(s, packet);
    }
}

static uint64_t hh_finish_any(const uint64_t *lanes, const uint8_t *rest, size_t n)
{
    uint64_t s[16], packet[4];
    memcpy(s, lanes, sizeof s);
    if (n) {
        hh_last_packet((uint8_t *)packet, rest, n);
        for (int i = 0; i < 4; i++) {
            uint32_t lo = (uint32_t)s[4 + i], hi = (uint32_t)(s[4 + i] >> 32);
            s[i] += (uint64_t)n << 32 | n;
            lo = lo << n | lo >> (32 - n);
            hi = hi << n | hi >> (32 - n);
            s[4 + i] = (uint64_t)hi << 32 | lo;
        }
        hh_mix(s, packet);
    }
    for (int i = 0; i < 4; i++) {
        packet[0] = hh_swap_halves(s[2]);
        packet[1] = hh_swap_halves(s[3]);
        packet[2] = hh_swap_halves(s[0]);
        packet[3] = hh_swap_halves(s[1]);
        hh_mix(s, packet);
    }
    return s[0] + s[4] + s[8] + s[12];
}

static uint64_t hh_once_any(const uint64_t *lanes, const uint8_t *p, size_t n)
{
    uint64_t s[16];
    memcpy(s, lanes, sizeof s);
    hh_packets_any(s, p, n);
    return hh_finish_any(s, p + (n & ~(size_t)31), n & 31);
}

/* 16 bytes and n more that follow them somewhere else */
static uint64_t hh_headed_any(const uint64_t *lanes, const uint8_t *head, const uint8_t *p, size_t n)
{
    uint64_t s[16];
    uint8_t packet[32];
    size_t part = n < 16 ? n : 16;
    memcpy(s, lanes, sizeof s);
    memcpy(packet, head, 16);
    memcpy(packet + 16, p, part);
    if (n < 16)
        return hh_finish_any(s, packet, 16 + n);
    hh_packets_any(s, packet, 32);
    p += 16;
    n -= 16;
    hh_packets_any(s, p, n);
    return hh_finish_any(s, p + (n & ~(size_t)31), n & 31);
}

/* ---- AVX2: four lanes are one register ---- */

#if defined(__x86_64__)
#include <immintrin.h>
#define HH_AVX2 __attribute__((target("avx2")))

typedef struct { __m256i v0, v1, mul0, mul1; } hh_regs;

HH_INLINE HH_AVX2 hh_regs hh_load(const uint64_t *s)
{
    hh_regs r = {
        _mm256_loadu_si256((const __m256i *)s), _mm256_loadu_si256((const __m256i *)(s + 4)),
        _mm256_loadu_si256((const __m256i *)(s + 8)), _mm256_loadu_si256((const __m256i *)(s + 12)),
    };
    return r;
}

HH_INLINE HH_AVX2 __m256i hh_zipper_avx2(__m256i v)
{
    return _mm256_shuffle_epi8(v, _mm256_setr_epi8(
        3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7,
        3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7));
}

HH_INLINE HH_AVX2 void hh_mix_avx2(hh_regs *r, __m256i packet)
{
    r->v1 = _mm256_add_epi64(r->v1, _mm256_add_epi64(r->mul0, packet));
    r->mul0 = _mm256_xor_si256(r->mul0, _mm256_mul_epu32(r->v1, _mm256_srli_epi64(r->v0, 32)));
    r->v0 = _mm256_add_epi64(r->v0, r->mul1);
    r->mul1 = _mm256_xor_si256(r->mul1, _mm256_mul_epu32(r->v0, _mm256_srli_epi64(r->v1, 32)));
    r->v0 = _mm256_add_epi64(r->v0, hh_zipper_avx2(r->v1));
    r->v1 = _mm256_add_epi64(r->v1, hh_zipper_avx2(r->v0));
}

/* hh_last_packet() in a register */
HH_INLINE HH_AVX2 __m256i hh_last_packet_avx2(const uint8_t *p, size_t n)
{
    static const int32_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    size_t odd = n & 3;
    __m256i packet = _mm256_maskload_epi32(
        (const int *)p, _mm256_loadu_si256((const __m256i *)(masks + 8 - (n >> 2))));
    if (n & 16) {
        uint32_t last;
        memcpy(&last, p + n - 4, 4);
        packet = _mm256_insert_epi32(packet, (int)last, 7);
    } else if (odd) {
        const uint8_t *rest = p + n - odd;
        packet = _mm256_insert_epi32(packet, rest[0] | rest[odd >> 1] << 8 | rest[odd - 1] << 16, 4);
    }
    return packet;
}

HH_INLINE HH_AVX2 uint64_t hh_end_avx2(hh_regs *r, const uint8_t *rest, size_t n)
{
    if (n) {
        r->v0 = _mm256_add_epi64(r->v0, _mm256_set1_epi32((int)n));
        r->v1 = _mm256_or_si256(
            _mm256_sll_epi32(r->v1, _mm_cvtsi32_si128((int)n)),
            _mm256_srl_epi32(r->v1, _mm_cvtsi32_si128(32 - (int)n)));
        hh_mix_avx2(r, hh_last_packet_avx2(rest, n));
    }
    for (int i = 0; i < 4; i++)
        hh_mix_avx2(r, _mm256_shuffle_epi32(_mm256_permute2x128_si256(r->v0, r->v0, 1), 0xb1));
    return (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(
        _mm256_add_epi64(_mm256_add_epi64(r->v0, r->v1), _mm256_add_epi64(r->mul0, r->mul1))));
}

static HH_AVX2 void hh_packets_avx2(uint64_t *s, const uint8_t *p, size_t n)
{
    hh_regs r = hh_load(s);
    for (; n >= 32; n -= 32, p += 32)
        hh_mix_avx2(&r, _mm256_loadu_si256((const __m256i *)p));
    _mm256_storeu_si256((__m256i *)s, r.v0);
    _mm256_storeu_si256((__m256i *)(s + 4), r.v1);
    _mm256_storeu_si256((__m256i *)(s + 8), r.mul0);
    _mm256_storeu_si256((__m256i *)(s + 12), r.mul1);
}

static HH_AVX2 uint64_t hh_finish_avx2(const uint64_t *lanes, const uint8_t *rest, size_t n)
{
    hh_regs r = hh_load(lanes);
    return hh_end_avx2(&r, rest, n);
}

static HH_AVX2 uint64_t hh_once_avx2(const uint64_t *lanes, const uint8_t *p, size_t n)
{
    hh_regs r = hh_load(lanes);
    for (; n >= 32; n -= 32, p += 32)
        hh_mix_avx2(&r, _mm256_loadu_si256((const __m256i *)p));
    return hh_end_avx2(&r, p, n);
}

static HH_AVX2 uint64_t hh_headed_avx2(const uint64_t *lanes, const uint8_t *head, const uint8_t *p, size_t n)
{
    hh_regs r = hh_load(lanes);
    if (n < 16) {
        uint8_t packet[32];
        memcpy(packet, head, 16);
        memcpy(packet + 16, p, n);
        return hh_end_avx2(&r, packet, 16 + n);
    }
    hh_mix_avx2(&r, _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)head)), _mm_loadu_si128((const __m128i *)p), 1));
    for (p += 16, n -= 16; n >= 32; n -= 32, p += 32)
        hh_mix_avx2(&r, _mm256_loadu_si256((const __m256i *)p));
    return hh_end_avx2(&r, p, n);
}
#endif

/* ---- the processor's ---- */

static int hh_wide;    /* set once, before the first hash */

static void hh_detect(int allowed)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    hh_wide = allowed && __builtin_cpu_supports("avx2");
#else
    (void)allowed;
#endif
}

#if defined(__x86_64__)
#define HH_PICK(wide, any) (hh_wide ? (wide) : (any))
#else
#define HH_PICK(wide, any) (any)
#endif

HH_INLINE void hh_packets(uint64_t *s, const uint8_t *p, size_t n)
{
    HH_PICK(hh_packets_avx2(s, p, n), hh_packets_any(s, p, n));
}

HH_INLINE uint64_t hh_finish(const uint64_t *s, const uint8_t *rest, size_t n)
{
    return HH_PICK(hh_finish_avx2(s, rest, n), hh_finish_any(s, rest, n));
}

HH_INLINE uint64_t hh_once(const uint64_t *s, const uint8_t *p, size_t n)
{
    return HH_PICK(hh_once_avx2(s, p, n), hh_once_any(s, p, n));
}

HH_INLINE uint64_t hh_headed(const uint64_t *s, const uint8_t *head, const uint8_t *p, size_t n)
{
    return HH_PICK(hh_headed_avx2(s, head, p, n), hh_headed_any(s, head, p, n));
}

/* ---- SHA-256 ---- */

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

HH_INLINE uint32_t sha256_rotr(uint32_t v, int n) { return v >> n | v << (32 - n); }

static void sha256_block(uint32_t *h, const uint8_t *p)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) {
        memcpy(&w[i], p + 4 * i, 4);
        w[i] = __builtin_bswap32(w[i]);
    }
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7]
            + (sha256_rotr(w[i - 15], 7) ^ sha256_rotr(w[i - 15], 18) ^ w[i - 15] >> 3)
            + (sha256_rotr(w[i - 2], 17) ^ sha256_rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t t1 = s[7] + (sha256_rotr(e, 6) ^ sha256_rotr(e, 11) ^ sha256_rotr(e, 25))
            + ((e & s[5]) ^ (~e & s[6])) + sha256_k[i] + w[i];
        uint32_t t2 = (sha256_rotr(a, 2) ^ sha256_rotr(a, 13) ^ sha256_rotr(a, 22))
            + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

static void sha256(uint8_t *digest, const uint8_t *p, size_t n)
{
    uint32_t h[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    uint8_t tail[128] = {0};
    uint64_t bits = __builtin_bswap64((uint64_t)n * 8);
    for (; n >= 64; n -= 64, p += 64)
        sha256_block(h, p);
    if (n)
        memcpy(tail, p, n);
    tail[n] = 0x80;
    memcpy(tail + (n < 56 ? 56 : 120), &bits, 8);
    sha256_block(h, tail);
    if (n >= 56)
        sha256_block(h, tail + 64);
    for (int i = 0; i < 8; i++) {
        uint32_t word = __builtin_bswap32(h[i]);
        memcpy(digest + 4 * i, &word, 4);
    }
}

#endif
