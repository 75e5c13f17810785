// Computes the committed AdamW hash with every instruction set of the machine (or emulator) it runs on; built by
// tools/check_neon. Exits with 1 if a hash differs, or if the instruction set named as argument cannot run.
#include <cstdio>
#include <string>

#include "megatrain/ops/adamw.h"
#include "tests/ops/adamw_hash.h"

int main(int argc, char** argv) {
  using namespace megatrain;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s scalar|neon|avx2|avx512\n", argv[0]);
    return 2;
  }
  bool ran = false, equal = true;
  for (const Simd simd : {Simd::scalar, Simd::neon, Simd::avx2, Simd::avx512}) {
    if (!simd_runs_here(simd)) continue;
    ran |= argv[1] == std::string(simd_name(simd));
    for (const bool split : {true, false}) {
      const std::string hash = adamw_hash(split, split, [&](const AdamW& args) { equal &= adamw_cpu(args, simd); });
      equal &= hash == kAdamWHash;
      std::printf("%-6s %s master  %s%s\n", simd_name(simd), split ? "split" : "plain", hash.c_str(),
                  hash == kAdamWHash ? "" : "  DIFFERS");
    }
  }
  if (!ran) std::printf("%s does not run here\n", argv[1]);
  return ran && equal ? 0 : 1;
}
