// The timeline of a step as it ran: one track per lane, as JSON for Chrome's and Perfetto's viewers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/plan/schedule.h"

namespace megatrain {

struct Span {
  const Action* action;
  double start_s, end_s;     // host clock
  int64_t layer = -1;        // of the action's record, numbered as in describe_record(); -1: it has none
  std::string experts = {};  // experts_of() for the record
};

class Trace {
 public:
  void add(int64_t step, const std::vector<Span>& spans);
  bool empty() const { return events_.empty(); }
  std::string json() const;

 private:
  std::string events_;  // comma-separated objects
  double origin_s_ = 0;
};

}  // namespace megatrain
