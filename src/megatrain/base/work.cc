#include "megatrain/base/work.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

struct WorkList {
  std::mutex lock;
  std::vector<const Work*> works;  // innermost last
};

// Never destroyed: a watching thread may read it until the process ends.
WorkList& list() {
  static WorkList& all = *new WorkList;
  return all;
}

}  // namespace

Work::Work(std::string what, WorkOptions options)
    : what_(std::move(what)), options_(std::move(options)), start_s_(now_s()) {
  std::lock_guard lock(list().lock);
  list().works.push_back(this);
}

Work::~Work() {
  std::lock_guard lock(list().lock);
  std::erase(list().works, this);
}

void Work::advance(double fraction) {
  std::lock_guard lock(list().lock);
  fraction_ = std::max(fraction_, fraction);
}

void Work::become(std::string what, std::string then) {
  std::lock_guard lock(list().lock);
  what_ = std::move(what);
  options_.then = std::move(then);
  start_s_ = now_s();
}

WorkNow work_now() {
  std::lock_guard lock(list().lock);
  WorkNow now;
  if (list().works.empty()) return now;
  const Work& work = *list().works.back();
  const double elapsed = now_s() - work.start_s_;
  const bool known = work.fraction_ > 0 || work.options_.expected_s > elapsed;
  const double left =
      work.fraction_ > 0 ? elapsed * (1 - work.fraction_) / work.fraction_ : work.options_.expected_s - elapsed;
  now.what = work.what_;
  now.duration = known ? fmt::format("about {} left", format_duration(std::ceil(left)))
                       : fmt::format("for {} so far", format_duration(elapsed));
  now.ends_at_stop = work.options_.ends_at_stop;
  for (const Work* each : list().works) {
    if (!each->options_.then.empty()) now.then = each->options_.then;
  }
  return now;
}

}  // namespace megatrain
