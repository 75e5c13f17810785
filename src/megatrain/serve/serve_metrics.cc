#include "megatrain/serve/serve_metrics.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

namespace megatrain {

namespace {

constexpr double kBuckets_s[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

template <class Value>
void write_value(std::string& out, const char* name, const char* type, const char* help, Value value) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
}

}  // namespace

void ServeMetrics::Histogram::add(double seconds) {
  counts.resize(std::size(kBuckets_s) + 1);
  ++counts[static_cast<size_t>(std::ranges::lower_bound(kBuckets_s, seconds) - std::begin(kBuckets_s))];
  sum += seconds;
}

int64_t ServeMetrics::Histogram::count() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

void ServeMetrics::add_request(const std::string& endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{endpoint, status}];
}
void ServeMetrics::add_prompt_tokens(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
}
void ServeMetrics::add_queue_s(double seconds) {
  const std::lock_guard lock(mutex_);
  queue_.add(seconds);
}
void ServeMetrics::add_first_token_s(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}
void ServeMetrics::add_answer_s(double seconds) {
  const std::lock_guard lock(mutex_);
  answer_.add(seconds);
}

void ServeMetrics::write(std::string& out, const char* name, const char* help, const Histogram& histogram) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  int64_t below = 0;
  for (size_t i = 0; i < std::size(kBuckets_s); ++i) {
    if (i < histogram.counts.size()) below += histogram.counts[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBuckets_s[i], below);
  }
  out += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, histogram.count(),
                     histogram.sum);
}

std::string ServeMetrics::text(const Now& now) const {
  const std::lock_guard lock(mutex_);
  std::string out =
      "# HELP megatrain_requests_total Requests that were answered or refused.\n# TYPE megatrain_requests_total "
      "counter\n";
  for (const auto& [key, count] : requests_)
    out += fmt::format("megatrain_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  write_value(out, "megatrain_prompt_tokens_total", "counter", "Tokens of prompts.", prompt_tokens_);
  write_value(out, "megatrain_reused_prompt_tokens_total", "counter", "Tokens of prompts whose keys were still cached.",
              now.reused_tokens);
  write_value(out, "megatrain_generated_tokens_total", "counter", "Tokens of answers.", now.generated_tokens);
  write_value(out, "megatrain_answers_running", "gauge", "Answers that are being made.", now.running);
  write_value(out, "megatrain_answers_waiting", "gauge", "Answers that wait for a place.", now.waiting);
  write_value(out, "megatrain_answer_places", "gauge", "Answers that can be made at once.", now.places);
  write_value(out, "megatrain_queue_limit_seconds", "gauge", "The longest that a request waits.", now.most_wait_s);
  write(out, "megatrain_queue_seconds", "Time from a request's arrival to the start of its first answer.", queue_);
  write(out, "megatrain_first_token_seconds", "Time from a request's arrival to its first token.", first_token_);
  write(out, "megatrain_request_seconds", "Time from a request's arrival to its last token.", answer_);
  return out;
}

}  // namespace megatrain
