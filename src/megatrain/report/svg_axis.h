// Axes of a chart: a scale from values to pixels, round ticks, and their labels.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

struct Tick {
  double value = 0;
  std::string label;
};

// Maps values [low, high] to pixels [from, to]. Logarithmic scales take positive values.
struct Scale {
  double low = 0, high = 1;
  double from = 0, to = 1;
  bool logarithmic = false;

  double operator()(double value) const;
};

// About `count` round values within [low, high].
std::vector<Tick> linear_ticks(double low, double high, int count);
// The same for whole numbers.
std::vector<Tick> whole_ticks(double low, double high, int count);
// Powers of ten within [low, high], with other round values between them if there are few.
std::vector<Tick> logarithmic_ticks(double low, double high);
// Bytes from 0, in one binary unit.
std::vector<Tick> byte_ticks(double high, int count);
// Seconds from 0, in s, ms or us.
std::vector<Tick> time_ticks(double high_s, int count);

// A run's time from 0: seconds below a few minutes, then whole minutes, hours or days.
std::vector<Tick> clock_ticks(double high_s, int count);

// "45s", "12m30s", "3h05m".
std::string clock_time(double seconds);

// A coordinate: two decimals, no more digits than needed.
std::string pixels(double value);

// "12.3k", "4.56M", "789": three digits.
std::string short_number(double value);

}  // namespace megatrain
