#include "megatrain/device/cpu/host_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace megatrain {
namespace {

TEST(HostStream, RunsWorkInOrder) {
  const auto stream = make_worker_stream("order");
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream->run([&order, i] { order.push_back(i); });
  stream->synchronize();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(HostStream, WaitsForAnEventOfAnotherStream) {
  const auto first = make_worker_stream("first"), second = make_worker_stream("second");
  for (int repeat = 0; repeat < 50; ++repeat) {
    HostEvent event;
    int value = 0, seen = -1;
    first->run([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      value = 7;
    });
    first->record(event);
    second->wait(event);
    second->run([&] { seen = value; });
    second->synchronize();
    EXPECT_EQ(seen, 7);
    first->synchronize();
  }
}

TEST(HostStream, AWaitIsForTheRecordBeforeItNotALaterOne) {
  const auto first = make_worker_stream("first"), second = make_worker_stream("second");
  HostEvent event;
  std::atomic<bool> release{false};
  first->record(event);
  second->wait(event);
  std::atomic<bool> passed{false};
  first->run([&] {
    while (!release) std::this_thread::yield();
  });
  first->record(event);  // not reached before `release`
  second->run([&] { passed = true; });
  second->synchronize();
  EXPECT_TRUE(passed);
  release = true;
  first->synchronize();
}

TEST(HostStream, AnErrorIsThrownOnceAndEventsAreStillReached) {
  const auto stream = make_worker_stream("error");
  HostEvent event;
  bool ran = false;
  stream->run([] { throw std::runtime_error("broken"); });
  stream->run([&] { ran = true; });
  stream->record(event);
  event.block();
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_FALSE(ran) << "work after a failure is skipped";
  stream->run([&] { ran = true; });
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST(HostStream, AfterAnErrorItStillWaitsBeforeItsEventsAreReached) {
  const auto user = make_worker_stream("user"), failing = make_worker_stream("failing");
  HostEvent used, after;
  std::atomic<bool> release{false};
  failing->run([] { throw std::runtime_error("broken"); });
  user->run([&] {
    while (!release) std::this_thread::yield();
  });
  user->record(used);
  failing->wait(used);
  failing->record(after);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(after.reached()) << "what waits for `after` relies on `used` too";
  release = true;
  after.block();
  user->synchronize();
  EXPECT_THROW(failing->synchronize(), std::runtime_error);
}

TEST(CpuDevice, CopiesAndZeroesInStreamOrder) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("copy");
  const Buffer a = device->allocate(4096, "a"), b = device->allocate_host(4096, "b");
  std::fill_n(reinterpret_cast<char*>(b.data()), 4096, 'x');
  stream->copy(a.data(), b.data(), 4096);
  stream->zero(b.data(), 4096);
  stream->synchronize();
  EXPECT_EQ(reinterpret_cast<char*>(a.data())[4095], 'x');
  EXPECT_EQ(reinterpret_cast<char*>(b.data())[4095], 0);
  EXPECT_EQ(device->ledger().bytes(), 4096);
  EXPECT_EQ(device->host_ledger().bytes(), 4096);
}

}  // namespace
}  // namespace megatrain
