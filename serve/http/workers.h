#pragma once
// A few threads for what takes longer than the network's thread may be held up: JSON, templates, tokenizing.

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

  /// An answer that `make` makes on a worker; `wake` is called when it is there. When nobody waits for it any more it
  /// is not made. `make` must not throw.
  [[nodiscard]] std::unique_ptr<Answer> answer(std::function<std::unique_ptr<Answer>()> make, Wake wake);
  /// Waits for the jobs in hand and drops the others.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace forge::serve
