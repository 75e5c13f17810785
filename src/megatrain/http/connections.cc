#include "megatrain/http/connections.h"

#include <event2/event.h>
#include <sys/socket.h>

#include <algorithm>

namespace megatrain {

namespace {

double seconds_between(Connection::Clock::time_point from, Connection::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Connection::Connection(bufferevent* stream) : stream_(stream) {
  bufferevent_incref(stream_);
  bufferevent_setcb(
      stream_, nullptr, nullptr, [](bufferevent*, short, void*) {}, nullptr);  // until libevent sets its own
  evbuffer_add_cb(bufferevent_get_input(stream_), count, this);
}

Connection::~Connection() {
  evbuffer_remove_cb(bufferevent_get_input(stream_), count, this);
  bufferevent_decref(stream_);
}

void Connection::count(evbuffer*, const evbuffer_cb_info* info, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  if (connection.is_over()) bufferevent_disable(connection.stream_, EV_READ);  // what still comes is not kept
  if (connection.in_work_ || info->n_added == 0) return;
  if (connection.bytes_ == 0 && !connection.is_new_) connection.since_ = Clock::now();
  connection.bytes_ += static_cast<int64_t>(info->n_added);
}

void Connection::end_work() {
  in_work_ = is_new_ = false;
  bytes_ = 0;
  since_ = Clock::now();
}

bool Connection::is_over() const {
  bufferevent_event_cb on_event = nullptr;  // libevent takes it away when it frees the stream
  bufferevent_getcb(stream_, nullptr, nullptr, &on_event, nullptr);
  return !on_event;
}

bool Connection::waits() const {
  return !in_work_ && is_open() && evbuffer_get_length(bufferevent_get_output(stream_)) == 0;
}

bool Connection::is_late(const HttpOptions& options, Clock::time_point now) const {
  if (!waits() || (bytes_ == 0 && !is_new_)) return false;
  const double more_s = static_cast<double>(bytes_) / static_cast<double>(options.least_bytes_per_s);
  return seconds_between(since_, now) > options.request_s + more_s;
}

void Connection::close() {
  closing_ = true;
  ::shutdown(bufferevent_getfd(stream_), SHUT_RDWR);
}

bufferevent* Connections::add(event_base* base) {
  if (!have_place()) {
    if (Connection* longest = longest_waiting()) longest->close();
  }
  bufferevent* stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (stream) open_.try_emplace(stream, stream);
  return stream;
}

void Connections::look() {
  const Connection::Clock::time_point now = Connection::Clock::now();
  std::erase_if(open_, [](const auto& entry) { return entry.second.is_over(); });
  for (auto& [stream, connection] : open_) {
    if (connection.is_late(options_, now)) connection.close();
  }
}

bool Connections::have_place() const {
  return std::count_if(open_.begin(), open_.end(), [](const auto& entry) { return entry.second.is_open(); }) <
         options_.max_connections;
}

bool Connections::have_room() { return have_place() || longest_waiting(); }

Connection* Connections::longest_waiting() {
  const Connection::Clock::time_point now = Connection::Clock::now();
  Connection* longest = nullptr;
  for (auto& [stream, connection] : open_) {
    if (!connection.waits() || seconds_between(connection.since(), now) < options_.least_wait_s) continue;
    if (!longest || connection.since() < longest->since()) longest = &connection;
  }
  return longest;
}

}  // namespace megatrain
