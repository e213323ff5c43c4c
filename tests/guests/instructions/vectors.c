// SSE4.2, AVX2, FMA, BMI1/2, AES, SHA, PCLMUL, F16C, POPCNT, MOVBE, ADX: results as hashes,
// and the upper halves of vectors survive calls, system calls and faults.
// flags: -mavx2 -mfma -mbmi -mbmi2 -maes -msha -mpclmul -mf16c -mpopcnt -mlzcnt -mmovbe -madx -msse4.2 -mrdrnd -lm
// cpu: avx2 fma bmi1 bmi2 aes sha_ni pclmulqdq f16c adx
#include "guest.h"
#include <immintrin.h>
static uint64_t h;
static void mix(const void *p, size_t n) {
    const unsigned char *b = p;
    while (n--) h = (h ^ *b++) * 0x100000001b3;
}
static void report(const char *what) { say("%s %016lx", what, h); h = 14695981039346656037ul; }
static uint64_t s = 42;
static __m256i random256(void) {
    uint64_t v[4];
    for (int i = 0; i < 4; i++) v[i] = next_random(&s);
    return _mm256_loadu_si256((void *)v);
}
#define MIX(expr) do { __auto_type value_ = (expr); mix(&value_, sizeof value_); } while (0)
int main(void) {
    h = 14695981039346656037ul;
    for (int i = 0; i < 500; i++) {
        __m256i a = random256(), b = random256();
        MIX(_mm256_add_epi8(a, b)); MIX(_mm256_mullo_epi32(a, b)); MIX(_mm256_shuffle_epi8(a, b));
        MIX(_mm256_permutevar8x32_epi32(a, b)); MIX(_mm256_sad_epu8(a, b)); MIX(_mm256_sllv_epi64(a, _mm256_and_si256(b, _mm256_set1_epi64x(63))));
        MIX(_mm256_madd_epi16(a, b)); MIX(_mm256_cmpgt_epi8(a, b)); MIX(_mm256_movemask_epi8(a)); MIX(_mm256_alignr_epi8(a, b, 5));
    }
    report("avx2");
    int table[256];
    for (int i = 0; i < 256; i++) table[i] = i * 7919;
    for (int i = 0; i < 200; i++) {
        __m256i index = _mm256_and_si256(random256(), _mm256_set1_epi32(255));
        MIX(_mm256_i32gather_epi32(table, index, 4));
        MIX(_mm256_mask_i32gather_epi32(index, table, index, random256(), 4));
        int out[8] = {0};
        _mm256_maskstore_epi32(out, random256(), index);
        MIX(_mm256_maskload_epi32(out, random256()));
    }
    report("gather");
    for (int i = 0; i < 500; i++) {
        __m256d a = _mm256_cvtepi32_pd(_mm256_castsi256_si128(random256())), b = _mm256_cvtepi32_pd(_mm256_castsi256_si128(random256()));
        MIX(_mm256_fmadd_pd(a, b, a)); MIX(_mm256_div_pd(a, b)); MIX(_mm256_sqrt_pd(_mm256_mul_pd(a, a))); MIX(_mm256_round_pd(_mm256_div_pd(a, b), 1));
        MIX(_mm256_fnmsub_pd(a, b, b)); MIX(_mm256_hadd_pd(a, b)); MIX(_mm256_cmp_pd(a, b, 14)); MIX(_mm256_cvtpd_ps(a));
        MIX(_mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_cvtepi32_ps(random256()), 0)));
    }
    report("float");
    for (int i = 0; i < 500; i++) {
        uint64_t a = next_random(&s), b = next_random(&s), high;
        MIX(_andn_u64(a, b)); MIX(_bextr_u64(a, 5, 20)); MIX(_blsr_u64(a)); MIX(_tzcnt_u64(a)); MIX(_lzcnt_u64(b >> (i & 63)));
        MIX(_pdep_u64(a, b)); MIX(_pext_u64(a, b)); MIX(_bzhi_u64(a, i & 63)); MIX(_mulx_u64(a, b, (void *)&high)); MIX(high);
        MIX(__builtin_popcountll(a)); MIX(_mm_crc32_u64(a, b)); MIX(_blsi_u64(a)); MIX(_blsmsk_u64(b));
        uint64_t shifts[3] = {a << (b & 63), a >> (b & 63), (uint64_t)((int64_t)a >> (b & 63))};
        mix(shifts, sizeof shifts);
        unsigned long long sum;
        unsigned char carry = _addcarryx_u64(a & 1, a, b, &sum);
        MIX(carry); MIX(sum);
        char bytes[8];
        __asm__("movbe %1, %0" : "=m"(*(uint64_t *)bytes) : "r"(a));
        mix(bytes, 8);
    }
    report("bmi");
    __m128i state = _mm256_castsi256_si128(random256()), key = _mm256_castsi256_si128(random256());
    for (int i = 0; i < 300; i++) {
        state = _mm_aesenc_si128(state, key);
        key = _mm_xor_si128(key, _mm_aeskeygenassist_si128(key, 27));
        state = _mm_aesdec_si128(_mm_aesimc_si128(state), key);
        state = _mm_xor_si128(state, _mm_clmulepi64_si128(state, key, 0x10));
    }
    MIX(state);
    report("aes");
    __m128i abef = state, cdgh = key, message = _mm256_castsi256_si128(random256());
    for (int i = 0; i < 300; i++) {
        message = _mm_sha256msg2_epu32(_mm_sha256msg1_epu32(message, abef), cdgh);
        __m128i t = _mm_sha256rnds2_epu32(cdgh, abef, message);
        cdgh = abef;
        abef = t;
        abef = _mm_sha1rnds4_epu32(abef, _mm_sha1nexte_epu32(cdgh, message), 2);
    }
    MIX(abef);
    report("sha");
    const char *text = "the quick brown fox jumps over the lazy dog";
    for (int i = 0; i < 27; i++) MIX(_mm_cmpistri(_mm_loadu_si128((void *)"lazy"), _mm_loadu_si128((void *)(text + i)), 12));
    report("sse42");
    // Upper halves across a system call.
    __m256i keep = random256(), after;
    __asm__ volatile("vmovdqu %1, %%ymm15; vmovdqu %1, %%ymm0; mov $39, %%eax; syscall; vpxor %%ymm15, %%ymm0, %%ymm1; vpor %%ymm15, %%ymm1, %%ymm1; vmovdqu %%ymm1, %0; vzeroupper"
                     : "=m"(after) : "m"(keep) : "rax", "rcx", "r11", "xmm0", "xmm1", "xmm15", "memory");
    say("kept %d", !memcmp(&keep, &after, 32));
}
