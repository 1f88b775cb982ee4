// The link into a compute unit, which answers to many batches share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "../packet/clock.h"
#include "server.h"

namespace chakrascope::gpu {

// Answers of the GPU's own memory come from all sides of the mesh, whose routers arbitrate
// round-robin between the sides. If a wavefront reads from every router of the memory, it is
// complete only when the answers from the furthest router are there: all waiting answers are then
// served together, line by line in turn (`join`). Other answers, and those of peers, which the
// ports have serialised, are served train by train, and before the waiting ones (`pass_by`).
// `Through` is called for an item, which has a train, when its last line has passed.
template <class Owner, class Item, void (Owner::*Through)(Item*, Fs)>
class Inlet {
  public:
    Inlet(Owner& owner, packet::Clock& clock, const Server& server)
        : owner_(&owner), clock_(&clock), server_(server) {}

    void pass_by(Item* item) {
        server_.serve(item->train, kLineBytes);
        if (!items_.empty()) turn_ -= work(item) / static_cast<Fs>(items_.size());
        (owner_->*Through)(item, item->train.tail);
    }

    void join(Item* item) {
        share();
        const Fs first = items_.empty() ? server_.backlog(clock_->now()) : 0;
        items_.emplace_back(turn_ + first + work(item), ++joined_, item);
        std::push_heap(items_.begin(), items_.end(), std::greater<>());
        wait();
    }

  private:
    Fs work(const Item* item) const { return server_.line_time(kLineBytes) * item->train.lines; }

    // Share the time since the last call among the waiting items.
    void share() {
        const Fs now = clock_->now();
        if (!items_.empty()) turn_ += (now - looked_) / static_cast<Fs>(items_.size());
        looked_ = now;
    }

    // Wake up when the first item could be complete; items that arrive until then only delay it.
    void wait() {
        const Fs left = std::max<Fs>(0, std::get<0>(items_.front()) - turn_);
        const Fs next = clock_->now() + left * static_cast<Fs>(items_.size());
        if (due_ >= 0 && due_ <= next) return;
        due_ = next;
        clock_->post<&Inlet::look>(next - clock_->now(), this);
    }

    void look() {
        if (clock_->now() != due_) return;  // superseded by an earlier wake-up
        due_ = -1;
        share();
        // The rounding error of a division is below a femtosecond.
        while (!items_.empty() && std::get<0>(items_.front()) <= turn_ + 1) {
            Item* item = std::get<2>(items_.front());
            std::pop_heap(items_.begin(), items_.end(), std::greater<>());
            items_.pop_back();
            const Fs last = item->train.tail + server_.line_time(kLineBytes);
            (owner_->*Through)(item, std::max(clock_->now(), last));
        }
        if (!items_.empty()) wait();
    }

    Owner* owner_;
    packet::Clock* clock_;
    Server server_;
    Fs turn_ = 0;    // how long an item would have been served if it had waited from the start
    Fs looked_ = 0;  // when `turn_` was computed
    Fs due_ = -1;    // the next wake-up; -1: none
    std::uint64_t joined_ = 0;
    std::vector<std::tuple<Fs, std::uint64_t, Item*>>
        items_;  // a heap, by the `turn_` at which they are complete
};

}  // namespace chakrascope::gpu
