#include "megatrain/run/live_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <tuple>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/host_name.h"
#include "megatrain/base/unix_time.h"
#include "megatrain/base/work.h"
#include "megatrain/host/memory.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr double kLanesEvery = 3;   // seconds between two requests for lanes
constexpr double kToldApart = 400;  // spans closer than this fraction (1/400) of the step are merged
constexpr size_t kSpare = 4096;     // bytes of padding behind the text

double microseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

// Returns false when it could not be written; no partial file is left.
bool replace_file(int directory, const std::string& name, const std::string& text) {
  const std::string partial = fmt::format("{}.{}-0.partial", name, ::getpid());
  const int file = ::openat(directory, partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t wrote = ::write(file, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    at += static_cast<size_t>(wrote);
  }
  const bool whole = ::close(file) == 0 && at == text.size();
  if (whole && ::renameat(directory, partial.c_str(), directory, name.c_str()) == 0) return true;
  ::unlinkat(directory, partial.c_str(), 0);
  return false;
}

size_t size_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

// Writes the end of a run on a full disk. It overwrites the existing file, whose blocks are already allocated, and
// drops what takes room. For an instant a reader may see malformed JSON.
void write_end_in_place(int directory, const std::string& name, json text) {
  const int file = ::openat(directory, name.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  const size_t room = size_of(file);
  text["lanes"] = nullptr;
  std::string whole = json_text(text);
  for (std::string message = text["message"]; whole.size() + 1 > room && !message.empty(); whole = json_text(text)) {
    message.resize(message.size() / 2);
    text["message"] = message;
  }
  if (whole.size() + 1 <= room) {
    whole.resize(room - 1, ' ');
    whole += '\n';
    std::ignore = ::pwrite(file, whole.data(), whole.size(), 0);
  }
  ::close(file);
}

}  // namespace

json live_lanes(int64_t step, double seconds, const std::vector<Span>& spans) {
  struct Joined {
    double start_s, end_s;
    ActionKind kind;
    int64_t layer, count;
  };
  std::array<std::vector<Joined>, kLanes> lanes;
  std::array<double, kLanes> busy{};
  double origin_s = 0, end_s = 0;
  for (const Span& span : spans) {
    origin_s = &span == &spans.front() ? span.start_s : std::min(origin_s, span.start_s);
    end_s = std::max(end_s, span.end_s);
  }
  const double near_s = (end_s - origin_s) / kToldApart;
  std::vector<const Span*> ordered;
  for (const Span& span : spans) ordered.push_back(&span);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Span* a, const Span* b) { return a->start_s < b->start_s; });
  for (const Span* span : ordered) {
    const auto lane = static_cast<size_t>(span->action->lane);
    busy[lane] += span->end_s - span->start_s;
    if (!lanes[lane].empty()) {
      Joined& last = lanes[lane].back();
      const bool narrow = std::min(span->end_s - span->start_s, last.end_s - last.start_s) < near_s;
      if (last.kind == span->action->kind && narrow && span->start_s - last.end_s < near_s) {
        last.end_s = std::max(last.end_s, span->end_s);
        if (last.layer != span->layer) last.layer = -1;
        ++last.count;
        continue;
      }
    }
    lanes[lane].push_back({span->start_s, span->end_s, span->action->kind, span->layer, 1});
  }
  json tracks = json::array();
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    json boxes = json::array();
    for (const Joined& box : lanes[lane])
      boxes.push_back({microseconds(box.start_s - origin_s), microseconds(box.end_s - box.start_s),
                       action_name(box.kind), box.layer, box.count});
    tracks.push_back({{"lane", lane_name(static_cast<Lane>(lane))},
                      {"busy_s", microseconds(busy[lane])},
                      {"spans", std::move(boxes)}});
  }
  return {{"step", step}, {"seconds", seconds}, {"tracks", std::move(tracks)}};
}

LiveFile::LiveFile(const std::string& run_dir, LiveAbout about, std::function<std::string()> running)
    : directory_(::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      about_(std::move(about)),
      running_(std::move(running)),
      started_(unix_s()),
      step_(about_.step) {
  write("");
  thread_ = std::thread([this] { loop(); });
}

LiveFile::~LiveFile() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (directory_ >= 0) ::close(directory_);
}

bool LiveFile::wants_lanes() const {
  std::lock_guard lock(mutex_);
  return fresh_.spans.empty() && (lanes_s_ == 0 || now_s() - lanes_s_ >= kLanesEvery);
}

void LiveFile::lanes(int64_t step, double seconds, std::vector<Span> spans) {
  std::lock_guard lock(mutex_);
  fresh_ = {step, seconds, std::move(spans)};
  lanes_s_ = now_s();
}

void LiveFile::step(const StepMetrics& metrics, int64_t hbm_used) {
  std::lock_guard lock(mutex_);
  step_ = metrics.step;
  hbm_used_ = hbm_used;
  hbm_peak_ = metrics.hbm_peak;
  host_peak_ = metrics.host_peak;
}

void LiveFile::end(const LiveEnd& end) {
  {
    std::lock_guard lock(mutex_);
    end_ = end;
    stopping_ = true;
  }
  changed_.notify_one();
  write("");
}

void LiveFile::loop() {
  std::unique_lock lock(mutex_);
  const auto every = std::chrono::duration<double>(about_.every_s);
  while (!changed_.wait_for(lock, every, [this] { return stopping_; })) {
    lock.unlock();
    // Not under the mutex: the thread that ends a hung run holds the lock that running_ waits for.
    write(running_ ? running_() : "");
    lock.lock();
  }
}

void LiveFile::write(const std::string& running) {
  std::lock_guard one(writing_);
  Lanes fresh;
  {
    std::lock_guard lock(mutex_);
    std::swap(fresh, fresh_);
  }
  json lanes;
  if (!fresh.spans.empty()) lanes = live_lanes(fresh.step, fresh.seconds, fresh.spans);
  const WorkNow now = work_now();
  const int64_t host_used = host_memory_used();
  json text;
  bool ended = false;
  {
    std::lock_guard lock(mutex_);
    if (!lanes.is_null()) lanes_ = std::move(lanes);
    const bool runs = end_.state == "running";
    ended = !runs;
    text = {{"version", 1},
            {"pid", ::getpid()},
            {"host", host_name()},
            {"started", started_},
            {"written", unix_s()},
            {"every_s", about_.every_s},
            {"state", end_.state},
            {"exit_code", runs ? json() : json(end_.exit_code)},
            {"message", end_.message},
            {"step", step_},
            {"steps", about_.steps},
            {"doing", runs ? now.what : ""},
            {"running", runs ? running : ""},
            {"memory",
             {{"hbm",
               {{"used", hbm_used_},
                {"peak", std::max(hbm_peak_, hbm_used_)},
                {"planned", about_.hbm_planned},
                {"limit", about_.hbm_limit}}},
              {"host",
               {{"used", host_used},
                {"peak", std::max(host_peak_, host_used)},
                {"planned", about_.host_planned},
                {"limit", host_memory_total()},
                {"available", host_memory_available()}}},
              {"disk", {{"planned", about_.disk_planned}}}}},
            {"floor", about_.floor},
            {"lanes", lanes_}};
  }
  if (directory_ < 0) return;
  const std::string spare(kSpare, ' ');
  if (!replace_file(directory_, kLiveFile, json_text(text) + spare + "\n") && ended)
    write_end_in_place(directory_, kLiveFile, std::move(text));
}

}  // namespace megatrain
