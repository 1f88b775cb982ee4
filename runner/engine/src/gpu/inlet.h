// The link into a compute unit, which answers of many batches share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "../packet/clock.h"
#include "server.h"

namespace chakrascope::gpu {

// Answers of the GPU's own memory come from all sides of the mesh, whose routers let each side go in turn.
// Where a wavefront reads from every router of the memory, it has its answers only when those from the
// furthest are there: all that wait go through together, line by line in turn (join). Others, and answers of
// peers, which the ports have put in order, go through train by train, and before them (pass_by). `Through`
// is told of an item, which has a train, when its last line is through.
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

    // Let those that are there share the time since the last look.
    void share() {
        const Fs now = clock_->now();
        if (!items_.empty()) turn_ += (now - looked_) / static_cast<Fs>(items_.size());
        looked_ = now;
    }

    // Look when the first could be through; whoever comes until then only makes it later.
    void wait() {
        const Fs left = std::max<Fs>(0, std::get<0>(items_.front()) - turn_);
        const Fs next = clock_->now() + left * static_cast<Fs>(items_.size());
        if (due_ >= 0 && due_ <= next) return;
        due_ = next;
        clock_->post<&Inlet::look>(next - clock_->now(), this);
    }

    void look() {
        if (clock_->now() != due_) return;  // an earlier look came between
        due_ = -1;
        share();
        // Divisions lose less than a femtosecond each.
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
    Fs turn_ = 0;    // how long an item would have been served that was there all the time
    Fs looked_ = 0;  // when that was so
    Fs due_ = -1;    // when it will look next; -1: never
    std::uint64_t joined_ = 0;
    std::vector<std::tuple<Fs, std::uint64_t, Item*>>
        items_;  // a heap: by the turn at which they are through
};

}  // namespace chakrascope::gpu
