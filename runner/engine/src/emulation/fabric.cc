#include "fabric.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "../errors.h"
#include "clock.h"
#include "fabric_port.h"

namespace chakrascope::emulation {
namespace {

// A provider without wake-ups is polled: continuously after recent activity, and later with naps of a
// fraction of the idle time.
constexpr Time kAwake = 50'000;
constexpr Time kShareOfNaps = 4;
constexpr Time kLongestNap = 250'000;
// A provider with wake-ups is also polled at this interval, because some providers do not signal every
// event.
constexpr Time kLongestWait = 5'000'000;

void nap(Time length) {
    const timespec time{0, static_cast<long>(length)};
    nanosleep(&time, nullptr);
}

class Ports final : public FabricTransport {
  public:
    Ports(const std::string& provider, const std::vector<std::string>& addresses, const Identity& identity)
        : provider_(provider), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        if (epoll_ < 0)
            throw engine::BackendError(std::string("There is no epoll: ") + std::strerror(errno) + ".");
        for (std::size_t path = 0; path < addresses.size(); ++path) {
            ports_.push_back(std::make_unique<FabricPort>(provider, addresses[path], identity,
                                                          static_cast<std::int32_t>(path)));
            const int file = ports_.back()->wait_file();
            epoll_event event{};
            event.events = EPOLLIN;
            if (file < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, file, &event) != 0) wakes_ = false;
        }
    }
    ~Ports() override { close(epoll_); }
    Ports(const Ports&) = delete;
    Ports& operator=(const Ports&) = delete;

    std::vector<std::string> names() const override {
        std::vector<std::string> names;
        for (const auto& port : ports_) names.push_back(port->name());
        return names;
    }

    void join(const std::map<std::int32_t, std::vector<std::string>>& peers, Time deadline) override {
        for (std::size_t path = 0; path < ports_.size(); ++path) {
            std::map<std::int32_t, std::string> names;
            for (const auto& [peer, ends] : peers)
                if (path < ends.size()) names[peer] = ends[path];
            ports_[path]->greet(names);
        }
        std::vector<Event> events;
        for (const auto& port : ports_) {
            while (!port->strangers().empty()) {
                const Time now = monotonic_ns();
                if (now >= deadline)
                    throw engine::BackendError(
                        "Rank " + std::to_string(port->strangers().front()) +
                        " cannot be reached through libfabric's provider " + provider_ +
                        ". Next: check that all hosts are on its network, and have the same provider.");
                move(events);
                nap(kLongestNap);
            }
            port->forget_name();
        }
        held_ = std::move(events);
    }

    void post(std::int32_t peer, const Header& header) override {
        FabricPort* least = nullptr;
        for (const auto& port : ports_) {
            if (port->reaches(peer) && (least == nullptr || port->queued(peer) < least->queued(peer)))
                least = port.get();
        }
        if (least == nullptr)
            throw engine::BackendError("There is no connection to rank " + std::to_string(peer) + ".");
        least->post(peer, header);
        // The used connection moves to the end of the list, so that connections with equally many
        // queued bytes take turns.
        const auto place = std::find_if(ports_.begin(), ports_.end(),
                                        [least](const auto& port) { return port.get() == least; });
        std::rotate(place, place + 1, ports_.end());
    }

    void progress(Until until, std::vector<Event>& events) override {
        events.insert(events.end(), held_.begin(), held_.end());
        held_.clear();
        Time moved = monotonic_ns();
        for (;;) {
            const bool any = move(events);
            const Time now = monotonic_ns();
            if (!events.empty() || now >= until.at) return;
            if (any) moved = now;
            if (!any && now >= moved + kAwake) wait(now, now - moved, until);
        }
    }

    bool idle() const override {
        return std::all_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->idle(); });
    }

  private:
    bool move(std::vector<Event>& events) {
        bool moved = false;
        for (const auto& port : ports_) moved = port->move(events) || moved;
        return moved;
    }

    void wait(Time now, Time idle_for, Until until) {
        const Time length = std::min(idle_for / kShareOfNaps, kLongestNap);
        if (!wakes_ && now + 2 * length < until.at) {
            nap(length);
            return;
        }
        for (const auto& port : ports_)
            if (wakes_ && !port->may_wait()) return;
        const Time longest = now + (wakes_ ? kLongestWait : 0);
        sleeper_.doze(wakes_ ? epoll_ : -1, longest < until.at ? Until{longest, false} : until);
    }

    const std::string provider_;
    int epoll_ = -1;
    bool wakes_ = true;
    Sleeper sleeper_;
    std::vector<std::unique_ptr<FabricPort>> ports_;
    std::vector<Event> held_;  // notices of messages that arrived before all peers had greeted
};

}  // namespace

std::unique_ptr<FabricTransport> FabricTransport::open(const std::string& provider,
                                                       const std::vector<std::string>& addresses,
                                                       const Identity& identity) {
    return std::make_unique<Ports>(provider, addresses, identity);
}

std::vector<std::string> FabricTransport::providers() { return FabricLibrary::get().providers(); }

bool FabricTransport::is_built() { return true; }

}  // namespace chakrascope::emulation
