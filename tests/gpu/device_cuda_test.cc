// Host and device streams wait for each other, and memory is accounted for.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "tests/gpu/cuda_fixture.h"

namespace megatrain::testing {
namespace {

TEST(CudaDevice, ACudaStreamWaitsForAHostStream) {
  const auto device = require_cuda_device();
  const auto cuda = device->make_stream("compute");
  const auto host = device->make_host_stream("update");
  const auto written = device->make_host_event();
  Buffer pinned = device->allocate_host(sizeof(int64_t), "test"), seen = device->allocate_host(sizeof(int64_t), "test");
  auto* value = pointer<volatile int64_t>(pinned);
  *value = 1;
  host->run([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    *value = 2;
  });
  host->record(*written);
  cuda->wait(*written);
  cuda->copy(seen.data(), pinned.data(), sizeof(int64_t));
  cuda->synchronize();
  EXPECT_EQ(*pointer<int64_t>(seen), 2);
  host->synchronize();
}

TEST(CudaDevice, AHostStreamWaitsForACudaStream) {
  const auto device = require_cuda_device();
  const auto cuda = device->make_stream("compute");
  const auto host = device->make_host_stream("update");
  const auto copied = device->make_event();
  const size_t bytes = static_cast<size_t>(kGiB);
  Buffer large = device->allocate(bytes, "test"), source = device->allocate_host(sizeof(int64_t), "test");
  Buffer pinned = device->allocate_host(sizeof(int64_t), "test");
  *pointer<int64_t>(source) = 5;
  int64_t seen = -1;
  for (int i = 0; i < 200; ++i) cuda->zero(large.data(), bytes);  // keeps the stream busy for tens of milliseconds
  cuda->copy(large.data(), source.data(), sizeof(int64_t));
  cuda->copy(pinned.data(), large.data(), sizeof(int64_t));
  cuda->record(*copied);
  host->wait(*copied);
  host->run([&] { seen = *pointer<volatile int64_t>(pinned); });
  host->synchronize();
  EXPECT_EQ(seen, 5);
  cuda->synchronize();
}

// A number makes rounds: the host adds one, the GPU copies it to device memory and back.
TEST(CudaDevice, EventsAreRecordedAndWaitedForAgainAndAgain) {
  const auto device = require_cuda_device();
  const auto cuda = device->make_stream("compute");
  const auto host = device->make_host_stream("update");
  const auto written = device->make_host_event();
  const std::unique_ptr<Event> returned[] = {device->make_event(), device->make_event()};
  Buffer pinned = device->allocate_host(sizeof(int64_t), "test"), back = device->allocate_host(sizeof(int64_t), "test");
  Buffer far = device->allocate(sizeof(int64_t), "test");
  auto *from = pointer<volatile int64_t>(back), *to = pointer<volatile int64_t>(pinned);
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    if (i > 0) host->wait(*returned[(i - 1) % 2]);
    host->run([=] { *to = *from + 1; });
    host->record(*written);
    cuda->wait(*written);
    cuda->copy(far.data(), pinned.data(), sizeof(int64_t));
    cuda->copy(back.data(), far.data(), sizeof(int64_t));
    cuda->record(*returned[i % 2]);
    returned[i % 2]->block();  // so the other one, waited for before it, may be recorded next
  }
  host->synchronize();
  EXPECT_EQ(*from, kRounds);
}

TEST(CudaDevice, TimesBothKindsOfEvents) {
  const auto device = require_cuda_device();
  const auto cuda = device->make_stream("compute");
  const auto host = device->make_host_stream("update");
  const auto cuda_from = device->make_event(), cuda_to = device->make_event();
  const auto host_from = device->make_host_event(), host_to = device->make_host_event();
  Buffer large = device->allocate(static_cast<size_t>(kGiB), "test");
  cuda->record(*cuda_from);
  for (int i = 0; i < 50; ++i) cuda->zero(large.data(), large.bytes());
  cuda->record(*cuda_to);
  cuda_to->block();
  EXPECT_GT(device->elapsed_s(*cuda_from, *cuda_to), 1e-3);
  host->record(*host_from);
  host->run([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  host->record(*host_to);
  host_to->block();
  EXPECT_GE(device->elapsed_s(*host_from, *host_to), 0.019);
}

TEST(CudaDevice, HostMemoryStartsAsZeroAndCopiesBothWays) {
  const auto device = require_cuda_device();
  const auto cuda = device->make_stream("compute");
  const size_t bytes = (size_t{3} << 20) + 12;
  Buffer host = device->allocate_host(bytes, "test"), far = device->allocate(bytes, "test");
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(host.data()[i], std::byte{0});
  for (size_t i = 0; i < bytes; ++i) host.data()[i] = static_cast<std::byte>(i * 7);
  cuda->copy(far.data(), host.data(), bytes);
  cuda->zero(host.data(), bytes);
  cuda->copy(host.data(), far.data(), bytes);
  cuda->synchronize();
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(host.data()[i], static_cast<std::byte>(i * 7));
}

TEST(CudaDevice, RefusesWhatCannotFitAndSaysWhoHoldsMemory) {
  const auto device = require_cuda_device();
  const Buffer held = device->allocate(static_cast<size_t>(kMiB), "a tag that must be named");
  try {
    device->allocate(size_t{1} << 44, "too much");
    FAIL() << "16 TiB were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_fit);
    EXPECT_NE(std::string(error.what()).find("a tag that must be named"), std::string::npos) << error.what();
  }
  const Buffer still_works = device->allocate(static_cast<size_t>(kMiB), "after");
  EXPECT_EQ(device->ledger().bytes(), 2 * kMiB);
}

TEST(CudaDevice, CountsItsMemory) {
  const auto device = require_cuda_device();
  const int64_t before = device->memory_used();
  const Buffer held = device->allocate(static_cast<size_t>(2 * kGiB), "test");
  EXPECT_GE(device->memory_used() - before, 2 * kGiB - 64 * kMiB);
  EXPECT_GT(device->memory_total(), device->memory_free());
}

}  // namespace
}  // namespace megatrain::testing
