#include "megatrain/engine/trace.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain {

void Trace::add(int64_t step, const std::vector<Span>& spans) {
  if (events_.empty()) {
    for (int i = 0; i < kLanes; ++i) {
      events_ += fmt::format(R"({}{{"ph":"M","name":"thread_name","pid":1,"tid":{},"args":{{"name":"{}"}}}})",
                             i ? ",\n" : "", i, lane_name(static_cast<Lane>(i)));
    }
    origin_s_ = std::min_element(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
                  return a.start_s < b.start_s;
                })->start_s;
  }
  for (const Span& span : spans) {
    const Action& a = *span.action;
    const std::string layer = span.layer >= 0 ? fmt::format(" {}", span.layer) : "";
    const std::string experts = span.experts.empty() ? "" : ", " + span.experts;
    const std::string held = span.experts.empty() ? "" : fmt::format(R"(,"experts":"{}")", span.experts);
    events_ += fmt::format(
        ",\n"
        R"({{"ph":"X","name":"{}{}{}","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{},"layer":{}{},"micro_batch":{}}}}})",
        action_name(a.kind), layer, experts, static_cast<int>(a.lane), (span.start_s - origin_s_) * 1e6,
        (span.end_s - span.start_s) * 1e6, step, span.layer, held, a.micro_batch);
  }
}

std::string Trace::json() const { return "{\"traceEvents\":[\n" + events_ + "\n]}\n"; }

}  // namespace megatrain
