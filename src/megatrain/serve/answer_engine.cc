#include "megatrain/serve/answer_engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/serve/api_error.h"

namespace megatrain {

void AnswerEngine::check(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    const int64_t tokens = std::ssize(job.prompt.ids);
    if (tokens >= context()) {
      throw ApiError(
          400,
          fmt::format(
              "the prompt has {} tokens, but this server's context of {} tokens must hold the answer too; shorten it",
              tokens, context()),
          job.prompt.chat ? "messages" : "prompt", "context_length_exceeded");
    }
    generator_.batch().check({.prompt = job.prompt.ids});
  }
  const std::lock_guard lock(mutex_);
  if (waiting_.size() + jobs.size() > kMostWaiting)
    throw ApiError(503, fmt::format("{} answers are waiting already; try again later", waiting_.size()), "",
                   "overloaded");
}

std::vector<AnswerEngine::Number> AnswerEngine::submit(std::vector<Job> jobs) {
  std::vector<Number> numbers;
  const std::lock_guard lock(mutex_);
  for (Job& job : jobs) {
    waiting_.push_back({.number = ++numbers_, .job = std::move(job)});
    numbers.push_back(numbers_);
  }
  changed_.notify_one();
  return numbers;
}

void AnswerEngine::cancel(const std::vector<Number>& numbers) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(numbers.begin(), numbers.end());
  changed_.notify_one();
}

void AnswerEngine::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_one();
}

// Waits for work, drops cancelled jobs and moves waiting ones to free places; false at the end.
bool AnswerEngine::admit() {
  DecodeBatch& batch = generator_.batch();
  std::vector<Waiting> starting;
  std::vector<Waiting> dropped;  // destroyed without the lock: what a job holds may call back
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !cancelled_.empty() || !live_.empty(); });
    if (stopping_) {
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(dropped));
      waiting_.clear();
      return false;
    }
    if (!cancelled_.empty()) {
      const auto gone = std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
        return !cancelled_.contains(waiting.number);
      });
      std::move(gone, waiting_.end(), std::back_inserter(dropped));
      waiting_.erase(gone, waiting_.end());
      for (auto live = live_.begin(); live != live_.end();) {
        if (cancelled_.contains(live->second.number)) {
          batch.drop(live->first);
          dropped.push_back({live->second.number, std::move(live->second.job)});
          live = live_.erase(live);
        } else {
          ++live;
        }
      }
      cancelled_.clear();
    }
    for (int64_t free = sequences() - std::ssize(live_); free > 0 && !waiting_.empty(); --free) {
      starting.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }
  for (Waiting& waiting : starting) start(std::move(waiting));
  return true;
}

void AnswerEngine::start(Waiting waiting) {
  const Job& job = waiting.job;
  const DecodeBatch::Ticket ticket =
      generator_.batch().add({.prompt = job.prompt.ids,
                              .max_tokens = job.prompt.max_tokens,
                              .sampling = job.sampling,
                              .sequence = job.sequence,
                              .reuse = true,
                              .adapter = job.adapter},
                             job.prompt.chat ? job.text->chat_end_ids : job.text->end_ids);
  AnswerText text(job.text->tokenizer, job.stops);
  live_.emplace(ticket, Live{.number = waiting.number, .job = std::move(waiting.job), .text = std::move(text)});
}

void AnswerEngine::take(const DecodeBatch::Token& token) {
  const auto found = live_.find(token.ticket);
  Live& live = found->second;
  if (token.failed) {
    const Job job = std::move(live.job);
    live_.erase(found);
    try {
      std::rethrow_exception(token.failed);
    } catch (const std::exception& error) {
      log_warn(error.what());
      job.on_error(error.what());
    }
    return;
  }
  ++tokens_;
  live.ids.push_back(token.id);
  if (!token.is_end) {
    const std::string more = live.text.add(token.id);
    if (!more.empty()) live.job.on_text(more);
  }
  if (live.text.stopped()) generator_.batch().drop(token.ticket);
  if (token.last || live.text.stopped()) end(found, token.is_end ? Finish::stop : Finish::length);
}

void AnswerEngine::end(std::map<DecodeBatch::Ticket, Live>::iterator found, Finish finish) {
  const std::string more = found->second.text.finish();
  Live live = std::move(found->second);
  live_.erase(found);
  if (!more.empty()) live.job.on_text(more);
  live.job.on_answer(
      {.text = live.text.text(), .ids = std::move(live.ids), .finish = live.text.stopped() ? Finish::stop : finish});
}

void AnswerEngine::fail_all(const std::string& message) {
  log_warn(message);
  generator_.batch().clear();
  const std::map<DecodeBatch::Ticket, Live> failed = std::exchange(live_, {});
  for (const auto& [ticket, live] : failed) live.job.on_error(message);
}

void AnswerEngine::run() {
  while (admit()) {
    try {
      for (const DecodeBatch::Token& token : generator_.batch().step()) take(token);
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
  }
  generator_.batch().clear();
  live_.clear();
}

}  // namespace megatrain
