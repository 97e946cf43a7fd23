// The text of wgmma.mma_async for every N, for nvcc: an instruction names each of its N / 2
// accumulator registers, and its other operands come after them.
#pragma once

// Operands %0 .. %(N/2 - 1), as text.
#define ROUNDOFF_WGMMA_TEXT_8 "%0, %1, %2, %3"
#define ROUNDOFF_WGMMA_TEXT_16 ROUNDOFF_WGMMA_TEXT_8 ", %4, %5, %6, %7"
#define ROUNDOFF_WGMMA_TEXT_24 ROUNDOFF_WGMMA_TEXT_16 ", %8, %9, %10, %11"
#define ROUNDOFF_WGMMA_TEXT_32 ROUNDOFF_WGMMA_TEXT_24 ", %12, %13, %14, %15"
#define ROUNDOFF_WGMMA_TEXT_40 ROUNDOFF_WGMMA_TEXT_32 ", %16, %17, %18, %19"
#define ROUNDOFF_WGMMA_TEXT_48 ROUNDOFF_WGMMA_TEXT_40 ", %20, %21, %22, %23"
#define ROUNDOFF_WGMMA_TEXT_56 ROUNDOFF_WGMMA_TEXT_48 ", %24, %25, %26, %27"
#define ROUNDOFF_WGMMA_TEXT_64 ROUNDOFF_WGMMA_TEXT_56 ", %28, %29, %30, %31"
#define ROUNDOFF_WGMMA_TEXT_72 ROUNDOFF_WGMMA_TEXT_64 ", %32, %33, %34, %35"
#define ROUNDOFF_WGMMA_TEXT_80 ROUNDOFF_WGMMA_TEXT_72 ", %36, %37, %38, %39"
#define ROUNDOFF_WGMMA_TEXT_88 ROUNDOFF_WGMMA_TEXT_80 ", %40, %41, %42, %43"
#define ROUNDOFF_WGMMA_TEXT_96 ROUNDOFF_WGMMA_TEXT_88 ", %44, %45, %46, %47"
#define ROUNDOFF_WGMMA_TEXT_104 ROUNDOFF_WGMMA_TEXT_96 ", %48, %49, %50, %51"
#define ROUNDOFF_WGMMA_TEXT_112 ROUNDOFF_WGMMA_TEXT_104 ", %52, %53, %54, %55"
#define ROUNDOFF_WGMMA_TEXT_120 ROUNDOFF_WGMMA_TEXT_112 ", %56, %57, %58, %59"
#define ROUNDOFF_WGMMA_TEXT_128 ROUNDOFF_WGMMA_TEXT_120 ", %60, %61, %62, %63"
#define ROUNDOFF_WGMMA_TEXT_136 ROUNDOFF_WGMMA_TEXT_128 ", %64, %65, %66, %67"
#define ROUNDOFF_WGMMA_TEXT_144 ROUNDOFF_WGMMA_TEXT_136 ", %68, %69, %70, %71"
#define ROUNDOFF_WGMMA_TEXT_152 ROUNDOFF_WGMMA_TEXT_144 ", %72, %73, %74, %75"
#define ROUNDOFF_WGMMA_TEXT_160 ROUNDOFF_WGMMA_TEXT_152 ", %76, %77, %78, %79"
#define ROUNDOFF_WGMMA_TEXT_168 ROUNDOFF_WGMMA_TEXT_160 ", %80, %81, %82, %83"
#define ROUNDOFF_WGMMA_TEXT_176 ROUNDOFF_WGMMA_TEXT_168 ", %84, %85, %86, %87"
#define ROUNDOFF_WGMMA_TEXT_184 ROUNDOFF_WGMMA_TEXT_176 ", %88, %89, %90, %91"
#define ROUNDOFF_WGMMA_TEXT_192 ROUNDOFF_WGMMA_TEXT_184 ", %92, %93, %94, %95"
#define ROUNDOFF_WGMMA_TEXT_200 ROUNDOFF_WGMMA_TEXT_192 ", %96, %97, %98, %99"
#define ROUNDOFF_WGMMA_TEXT_208 ROUNDOFF_WGMMA_TEXT_200 ", %100, %101, %102, %103"
#define ROUNDOFF_WGMMA_TEXT_216 ROUNDOFF_WGMMA_TEXT_208 ", %104, %105, %106, %107"
#define ROUNDOFF_WGMMA_TEXT_224 ROUNDOFF_WGMMA_TEXT_216 ", %108, %109, %110, %111"
#define ROUNDOFF_WGMMA_TEXT_232 ROUNDOFF_WGMMA_TEXT_224 ", %112, %113, %114, %115"
#define ROUNDOFF_WGMMA_TEXT_240 ROUNDOFF_WGMMA_TEXT_232 ", %116, %117, %118, %119"
#define ROUNDOFF_WGMMA_TEXT_248 ROUNDOFF_WGMMA_TEXT_240 ", %120, %121, %122, %123"
#define ROUNDOFF_WGMMA_TEXT_256 ROUNDOFF_WGMMA_TEXT_248 ", %124, %125, %126, %127"

// The same as constraints.
#define ROUNDOFF_WGMMA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ROUNDOFF_WGMMA_D_8 ROUNDOFF_WGMMA_4(0)
#define ROUNDOFF_WGMMA_D_16 ROUNDOFF_WGMMA_D_8, ROUNDOFF_WGMMA_4(4)
#define ROUNDOFF_WGMMA_D_24 ROUNDOFF_WGMMA_D_16, ROUNDOFF_WGMMA_4(8)
#define ROUNDOFF_WGMMA_D_32 ROUNDOFF_WGMMA_D_24, ROUNDOFF_WGMMA_4(12)
#define ROUNDOFF_WGMMA_D_40 ROUNDOFF_WGMMA_D_32, ROUNDOFF_WGMMA_4(16)
#define ROUNDOFF_WGMMA_D_48 ROUNDOFF_WGMMA_D_40, ROUNDOFF_WGMMA_4(20)
#define ROUNDOFF_WGMMA_D_56 ROUNDOFF_WGMMA_D_48, ROUNDOFF_WGMMA_4(24)
#define ROUNDOFF_WGMMA_D_64 ROUNDOFF_WGMMA_D_56, ROUNDOFF_WGMMA_4(28)
#define ROUNDOFF_WGMMA_D_72 ROUNDOFF_WGMMA_D_64, ROUNDOFF_WGMMA_4(32)
#define ROUNDOFF_WGMMA_D_80 ROUNDOFF_WGMMA_D_72, ROUNDOFF_WGMMA_4(36)
#define ROUNDOFF_WGMMA_D_88 ROUNDOFF_WGMMA_D_80, ROUNDOFF_WGMMA_4(40)
#define ROUNDOFF_WGMMA_D_96 ROUNDOFF_WGMMA_D_88, ROUNDOFF_WGMMA_4(44)
#define ROUNDOFF_WGMMA_D_104 ROUNDOFF_WGMMA_D_96, ROUNDOFF_WGMMA_4(48)
#define ROUNDOFF_WGMMA_D_112 ROUNDOFF_WGMMA_D_104, ROUNDOFF_WGMMA_4(52)
#define ROUNDOFF_WGMMA_D_120 ROUNDOFF_WGMMA_D_112, ROUNDOFF_WGMMA_4(56)
#define ROUNDOFF_WGMMA_D_128 ROUNDOFF_WGMMA_D_120, ROUNDOFF_WGMMA_4(60)
#define ROUNDOFF_WGMMA_D_136 ROUNDOFF_WGMMA_D_128, ROUNDOFF_WGMMA_4(64)
#define ROUNDOFF_WGMMA_D_144 ROUNDOFF_WGMMA_D_136, ROUNDOFF_WGMMA_4(68)
#define ROUNDOFF_WGMMA_D_152 ROUNDOFF_WGMMA_D_144, ROUNDOFF_WGMMA_4(72)
#define ROUNDOFF_WGMMA_D_160 ROUNDOFF_WGMMA_D_152, ROUNDOFF_WGMMA_4(76)
#define ROUNDOFF_WGMMA_D_168 ROUNDOFF_WGMMA_D_160, ROUNDOFF_WGMMA_4(80)
#define ROUNDOFF_WGMMA_D_176 ROUNDOFF_WGMMA_D_168, ROUNDOFF_WGMMA_4(84)
#define ROUNDOFF_WGMMA_D_184 ROUNDOFF_WGMMA_D_176, ROUNDOFF_WGMMA_4(88)
#define ROUNDOFF_WGMMA_D_192 ROUNDOFF_WGMMA_D_184, ROUNDOFF_WGMMA_4(92)
#define ROUNDOFF_WGMMA_D_200 ROUNDOFF_WGMMA_D_192, ROUNDOFF_WGMMA_4(96)
#define ROUNDOFF_WGMMA_D_208 ROUNDOFF_WGMMA_D_200, ROUNDOFF_WGMMA_4(100)
#define ROUNDOFF_WGMMA_D_216 ROUNDOFF_WGMMA_D_208, ROUNDOFF_WGMMA_4(104)
#define ROUNDOFF_WGMMA_D_224 ROUNDOFF_WGMMA_D_216, ROUNDOFF_WGMMA_4(108)
#define ROUNDOFF_WGMMA_D_232 ROUNDOFF_WGMMA_D_224, ROUNDOFF_WGMMA_4(112)
#define ROUNDOFF_WGMMA_D_240 ROUNDOFF_WGMMA_D_232, ROUNDOFF_WGMMA_4(116)
#define ROUNDOFF_WGMMA_D_248 ROUNDOFF_WGMMA_D_240, ROUNDOFF_WGMMA_4(120)
#define ROUNDOFF_WGMMA_D_256 ROUNDOFF_WGMMA_D_248, ROUNDOFF_WGMMA_4(124)

// Accumulators of fp16: N / 4 registers of two.
#define ROUNDOFF_WGMMA_H4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define ROUNDOFF_WGMMA_H_8 ROUNDOFF_WGMMA_H4(0)
#define ROUNDOFF_WGMMA_H_16 ROUNDOFF_WGMMA_H_8, ROUNDOFF_WGMMA_H4(4)
#define ROUNDOFF_WGMMA_H_24 ROUNDOFF_WGMMA_H_16, ROUNDOFF_WGMMA_H4(8)
#define ROUNDOFF_WGMMA_H_32 ROUNDOFF_WGMMA_H_24, ROUNDOFF_WGMMA_H4(12)
#define ROUNDOFF_WGMMA_H_40 ROUNDOFF_WGMMA_H_32, ROUNDOFF_WGMMA_H4(16)
#define ROUNDOFF_WGMMA_H_48 ROUNDOFF_WGMMA_H_40, ROUNDOFF_WGMMA_H4(20)
#define ROUNDOFF_WGMMA_H_56 ROUNDOFF_WGMMA_H_48, ROUNDOFF_WGMMA_H4(24)
#define ROUNDOFF_WGMMA_H_64 ROUNDOFF_WGMMA_H_56, ROUNDOFF_WGMMA_H4(28)
#define ROUNDOFF_WGMMA_H_72 ROUNDOFF_WGMMA_H_64, ROUNDOFF_WGMMA_H4(32)
#define ROUNDOFF_WGMMA_H_80 ROUNDOFF_WGMMA_H_72, ROUNDOFF_WGMMA_H4(36)
#define ROUNDOFF_WGMMA_H_88 ROUNDOFF_WGMMA_H_80, ROUNDOFF_WGMMA_H4(40)
#define ROUNDOFF_WGMMA_H_96 ROUNDOFF_WGMMA_H_88, ROUNDOFF_WGMMA_H4(44)
#define ROUNDOFF_WGMMA_H_104 ROUNDOFF_WGMMA_H_96, ROUNDOFF_WGMMA_H4(48)
#define ROUNDOFF_WGMMA_H_112 ROUNDOFF_WGMMA_H_104, ROUNDOFF_WGMMA_H4(52)
#define ROUNDOFF_WGMMA_H_120 ROUNDOFF_WGMMA_H_112, ROUNDOFF_WGMMA_H4(56)
#define ROUNDOFF_WGMMA_H_128 ROUNDOFF_WGMMA_H_120, ROUNDOFF_WGMMA_H4(60)

// X(N, N / 2, the numbers of the seven operands after fp16 accumulators)
#define ROUNDOFF_WGMMA_EACH_HALF(X)       \
  X(16, 8, 4, 5, 6, 7, 8, 9, 10)          \
  X(32, 16, 8, 9, 10, 11, 12, 13, 14)     \
  X(48, 24, 12, 13, 14, 15, 16, 17, 18)   \
  X(64, 32, 16, 17, 18, 19, 20, 21, 22)   \
  X(80, 40, 20, 21, 22, 23, 24, 25, 26)   \
  X(96, 48, 24, 25, 26, 27, 28, 29, 30)   \
  X(112, 56, 28, 29, 30, 31, 32, 33, 34)  \
  X(128, 64, 32, 33, 34, 35, 36, 37, 38)  \
  X(144, 72, 36, 37, 38, 39, 40, 41, 42)  \
  X(160, 80, 40, 41, 42, 43, 44, 45, 46)  \
  X(176, 88, 44, 45, 46, 47, 48, 49, 50)  \
  X(192, 96, 48, 49, 50, 51, 52, 53, 54)  \
  X(208, 104, 52, 53, 54, 55, 56, 57, 58) \
  X(224, 112, 56, 57, 58, 59, 60, 61, 62) \
  X(240, 120, 60, 61, 62, 63, 64, 65, 66) \
  X(256, 128, 64, 65, 66, 67, 68, 69, 70)

// X(N, the numbers of the seven operands after the accumulators)
#define ROUNDOFF_WGMMA_EACH(X)              \
  X(8, 4, 5, 6, 7, 8, 9, 10)                \
  X(16, 8, 9, 10, 11, 12, 13, 14)           \
  X(24, 12, 13, 14, 15, 16, 17, 18)         \
  X(32, 16, 17, 18, 19, 20, 21, 22)         \
  X(40, 20, 21, 22, 23, 24, 25, 26)         \
  X(48, 24, 25, 26, 27, 28, 29, 30)         \
  X(56, 28, 29, 30, 31, 32, 33, 34)         \
  X(64, 32, 33, 34, 35, 36, 37, 38)         \
  X(72, 36, 37, 38, 39, 40, 41, 42)         \
  X(80, 40, 41, 42, 43, 44, 45, 46)         \
  X(88, 44, 45, 46, 47, 48, 49, 50)         \
  X(96, 48, 49, 50, 51, 52, 53, 54)         \
  X(104, 52, 53, 54, 55, 56, 57, 58)        \
  X(112, 56, 57, 58, 59, 60, 61, 62)        \
  X(120, 60, 61, 62, 63, 64, 65, 66)        \
  X(128, 64, 65, 66, 67, 68, 69, 70)        \
  X(136, 68, 69, 70, 71, 72, 73, 74)        \
  X(144, 72, 73, 74, 75, 76, 77, 78)        \
  X(152, 76, 77, 78, 79, 80, 81, 82)        \
  X(160, 80, 81, 82, 83, 84, 85, 86)        \
  X(168, 84, 85, 86, 87, 88, 89, 90)        \
  X(176, 88, 89, 90, 91, 92, 93, 94)        \
  X(184, 92, 93, 94, 95, 96, 97, 98)        \
  X(192, 96, 97, 98, 99, 100, 101, 102)     \
  X(200, 100, 101, 102, 103, 104, 105, 106) \
  X(208, 104, 105, 106, 107, 108, 109, 110) \
  X(216, 108, 109, 110, 111, 112, 113, 114) \
  X(224, 112, 113, 114, 115, 116, 117, 118) \
  X(232, 116, 117, 118, 119, 120, 121, 122) \
  X(240, 120, 121, 122, 123, 124, 125, 126) \
  X(248, 124, 125, 126, 127, 128, 129, 130) \
  X(256, 128, 129, 130, 131, 132, 133, 134)

// A and B by descriptors; the last operands are the transpositions, where the type has them.
#define ROUNDOFF_WGMMA_SS(N, a, b, p, kind, flags, ...)                                         \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N kind \
      " {" ROUNDOFF_WGMMA_TEXT_##N "}, %" #a ", %" #b ", p, 1, 1" flags ";\n}"                  \
      : ROUNDOFF_WGMMA_D_##N                                                                    \
      : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulate))__VA_ARGS__)
// A from registers.
#define ROUNDOFF_WGMMA_RS(N, a0, a1, a2, a3, b, p, kind, flags, ...)                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p                                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N kind " {" ROUNDOFF_WGMMA_TEXT_##N \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1" flags ";\n}"   \
               : ROUNDOFF_WGMMA_D_##N                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor),               \
                 "r"(static_cast<int>(accumulate))__VA_ARGS__)
// The same with fp16 accumulators; M is N / 2.
#define ROUNDOFF_WGMMA_SS_HALF(N, M, a, b, p, flags, ...)                                     \
  asm volatile(                                                                               \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N    \
      "k16.f16.f16.f16 {" ROUNDOFF_WGMMA_TEXT_##M "}, %" #a ", %" #b ", p, 1, 1" flags ";\n}" \
      : ROUNDOFF_WGMMA_H_##M                                                                  \
      : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulate))__VA_ARGS__)
