// Function attributes that allow the instructions of a kernel variant of the CPU. They are set per function, not per
// file: a file compiled with -mavx512f would put AVX-512 copies of inline library functions into the program, and the
// linker might choose such a copy for all machines.
#pragma once

#if defined(__x86_64__)
#define SLIPSTREAM_AVX2 __attribute__((target("avx2,fma,f16c")))
#define SLIPSTREAM_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#define SLIPSTREAM_AVX512_VNNI __attribute__((target("avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#define SLIPSTREAM_AVX512_BF16 __attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#else
#define SLIPSTREAM_AVX2
#define SLIPSTREAM_AVX512
#define SLIPSTREAM_AVX512_VNNI
#define SLIPSTREAM_AVX512_BF16
#endif
