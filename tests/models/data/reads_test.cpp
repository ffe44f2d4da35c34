// How loaders read: each sample is one job, on a low-priority thread that yields the processor to the caller.

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

#include "framework/base/job_queue.h"
#include "models/data/data.h"
#include "models/data/loader/regions.h"
#include "tests/models/data/made_source.h"

namespace mpigrad {
namespace {

using testing::MadeSource;

struct NotedRead {
  std::int64_t sample = 0;
  bool targets = false;
  std::thread::id thread;
};

// Notes the reading thread and the sample; has two threads of its own.
class NotedSource : public MadeSource {
 public:
  using MadeSource::MadeSource;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    note({sample, false, std::this_thread::get_id()});
    MadeSource::read(sample, box, out);
  }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    note({sample, true, std::this_thread::get_id()});
    MadeSource::read_targets(sample, box, out);
  }
  JobQueue& queue() const override { return queue_; }
  std::vector<NotedRead> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  void note(const NotedRead& call) const {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
  }
  mutable std::mutex mutex_;
  mutable std::vector<NotedRead> calls_;
  mutable JobQueue queue_{2};  // ends first
};

std::shared_ptr<NotedSource> noted() {
  return std::make_shared<NotedSource>(testing::MadeSamples{.samples = 12, .channels = 2, .extents = {4, 3, 2}});
}

}  // namespace

TEST_CASE("data: the values and the targets of a sample are read by one thread, one after the other") {
  const auto source = noted();
  const data::Loader loader(source, {.batch = 2, .shuffle = true, .shifts = true, .prefetch = 3, .cache_bytes = 0});
  std::int64_t samples = 0;
  for (const auto& batch : loader.epoch(0)) samples += batch.x.shape()[0];
  CHECK(samples == 12);
  const auto calls = source->calls();
  for (std::int64_t s = 0; s < 12; ++s) {
    std::vector<NotedRead> of;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(of), [s](const NotedRead& call) { return call.sample == s; });
    REQUIRE(of.size() >= 2);  // shifts may split the values into several boxes
    for (std::size_t i = 0; i < of.size(); ++i) {
      CHECK(of[i].targets == (i + 1 == of.size()));
      CHECK((of[i].thread == of[0].thread));
      CHECK((of[i].thread != std::this_thread::get_id()));
    }
  }
}

TEST_CASE("data: reads that were given up have failed, and are begun again where what was read is kept") {
  const auto source = noted();
  data::Regions regions(source, data::Region::Part::values, source->whole(), 12, 1 << 20, nullptr);
  data::RegionPtr lost;
  {
    data::Reads never;
    lost = regions.get(3, source->whole(), never);
  }
  CHECK(data::failed(*lost));
  CHECK_THROWS_AS(lost->ready.get(), std::future_error);
  data::Reads reads;
  const auto found = regions.get(3, source->whole(), reads);
  CHECK(found != lost);
  CHECK(!data::failed(*found));  // it has not begun
  CHECK(regions.get(3, source->whole(), reads) == found);
  reads.start(*source);
  found->ready.get();
  CHECK(source->calls().size() == 1);
}

#ifdef __linux__
TEST_CASE("jobs: their threads do batch work, who submits them does not") {
  const auto policy = [] {
    int result = -1;
    sched_param parameters{};
    pthread_getschedparam(pthread_self(), &result, &parameters);
    return result;
  };
  const auto before = policy();
  // If the system lets a thread lower its priority, the threads of a queue do so.
  bool allowed = false;
  std::thread([&] {
    const sched_param none{};
    allowed = pthread_setschedparam(pthread_self(), SCHED_BATCH, &none) == 0;
  }).join();
  JobQueue one(1), here(0);
  CHECK(one.run(policy) == (allowed ? SCHED_BATCH : before));
  CHECK(here.run(policy) == before);
  CHECK(policy() == before);
}
#endif

}  // namespace mpigrad
