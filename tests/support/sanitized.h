// Whether a sanitizer watches the tests: every step is many times slower then.
#pragma once

namespace megatrain {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace megatrain
