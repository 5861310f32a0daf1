#include "serve/http/workers.h"

#include <utility>

namespace forge::serve {
namespace {

/// An answer that another thread provides later, through the shared Place.
class LaterAnswer final : public Answer {
 public:
  struct Place {
    std::mutex mutex;
    std::unique_ptr<Answer> answer;
    bool abandoned = false;
  };
  explicit LaterAnswer(std::shared_ptr<Place> place) : place_(std::move(place)) {}
  ~LaterAnswer() override {
    const std::lock_guard lock(place_->mutex);
    place_->abandoned = true;
  }

  Part poll() override {
    if (!answer_) {
      const std::lock_guard lock(place_->mutex);
      answer_ = std::move(place_->answer);
    }
    return answer_ ? answer_->poll() : Part{};
  }
  [[nodiscard]] std::string_view ping() const override { return answer_ ? answer_->ping() : std::string_view(); }

 private:
  std::shared_ptr<Place> place_;
  std::unique_ptr<Answer> answer_;
};

}  // namespace

Workers::Workers(std::size_t threads) {
  try {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {  // thread creation failed: join those that were started
    stop();
    throw;
  }
}

std::unique_ptr<Answer> Workers::answer(std::function<std::unique_ptr<Answer>()> make, Wake wake) {
  auto place = std::make_shared<LaterAnswer::Place>();
  auto job = [place, make = std::move(make), wake = std::move(wake)] {
    {
      const std::lock_guard lock(place->mutex);
      if (place->abandoned) return;
    }
    auto answer = make();
    {
      const std::lock_guard lock(place->mutex);
      place->answer = std::move(answer);
    }
    wake();
  };
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  job_ready_.notify_one();
  return std::make_unique<LaterAnswer>(std::move(place));
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    job_ready_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // release what it captured before waiting for the next job
    lock.lock();
  }
}

void Workers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  job_ready_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace forge::serve
