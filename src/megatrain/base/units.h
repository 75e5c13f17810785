// Sizes, counts and times as people write them: "24GiB", "512 MB", "1.5TiB", "1048576"; "7.62B"; "12m30s".
#pragma once

#include <cstdint>
#include <string>

namespace megatrain {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Throws Error(bad_config) naming the text and the accepted forms.
int64_t parse_bytes(const std::string& text);

// "23.4 GiB", "512 B": three significant digits.
std::string format_bytes(int64_t bytes);
std::string format_bytes_up(int64_t bytes);  // rounded up, for a budget to ask for

// "999", "41.6K", "1.54M", "7.62B", "1.50T": three significant digits, more only from 1000T on.
std::string format_count(int64_t count);

// "1 step", "2 steps". `many` gives the plural if it does not end in -s.
std::string counted(int64_t count, const std::string& one, const std::string& many = "");

// "0.809 s", "38 s", "1910 s": three significant digits, more only from 1000 on.
std::string format_seconds(double seconds);

// "45s", "12m30s", "2h05m", "3d04h".
std::string format_duration(double seconds);

}  // namespace megatrain
