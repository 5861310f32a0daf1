#include "support/os/key_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace forge {

KeyLock::KeyLock(std::filesystem::path path, const std::function<void()>& waiting) : path_(std::move(path)) {
  error_ = acquire(waiting);
}
KeyLock::~KeyLock() {
  if (fd_) ::unlink(path_.c_str());
}

int KeyLock::acquire(const std::function<void()>& waiting) {
  bool told = false;
  while (true) {
    UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return errno;
    int locked = ::flock(fd.get(), LOCK_EX | LOCK_NB);
    if (locked != 0 && errno == EWOULDBLOCK) {
      if (!std::exchange(told, true) && waiting) waiting();
      do locked = ::flock(fd.get(), LOCK_EX);
      while (locked != 0 && errno == EINTR);
    }
    if (locked != 0) return errno;
    // While this process waited, the previous holder may have deleted the file and a third process may have created and
    // locked a new one. The lock counts only if the path still leads to the file that was locked.
    struct stat mine{}, there{};
    if (::fstat(fd.get(), &mine) != 0) return errno;
    if (::stat(path_.c_str(), &there) == 0 && there.st_ino == mine.st_ino && there.st_dev == mine.st_dev) {
      fd_ = std::move(fd);
      return 0;
    }
  }
}

}  // namespace forge
