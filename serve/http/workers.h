#pragma once
// A small thread pool for work that would block the network thread too long: JSON parsing, chat templates, tokenising.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/http/http.h"

namespace forge::serve {

class Workers {
 public:
  explicit Workers(std::size_t threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() { stop(); }

  /// Returns an answer at once and runs `make` on a worker; from then on the returned answer forwards to the one that
  /// `make` returned, and `wake` is called. If the returned answer is destroyed before a worker takes the job, `make`
  /// is not called. `make` must not throw.
  [[nodiscard]] std::unique_ptr<Answer> answer(std::function<std::unique_ptr<Answer>()> make, Wake wake);
  /// Waits for running jobs and drops queued ones.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable job_ready_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace forge::serve
